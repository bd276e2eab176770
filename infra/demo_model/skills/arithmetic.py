"""Sums, differences and small products. Two digits are worked out one place at a time."""

from random import Random

from infra.demo_model.samples import Sample, normalize

_WORDINGS = {
    "+": ["What is {a} + {b}?", "{a} + {b}", "{a} + {b} = ?", "Compute {a} + {b}.",
          "What is {a} plus {b}?", "Add {a} and {b}.", "How much is {a} + {b}?"],
    "-": ["What is {a} - {b}?", "{a} - {b}", "{a} - {b} = ?", "Compute {a} - {b}.",
          "What is {a} minus {b}?", "Take {a} minus {b}.", "How much is {a} - {b}?"],
    "x": ["What is {a} x {b}?", "{a} x {b}", "{a} x {b} = ?", "Compute {a} x {b}.",
          "What is {a} times {b}?", "Multiply {a} by {b}.", "How much is {a} * {b}?"],
}  # fmt: skip


def draw_arithmetic(rng: Random) -> Sample:
    operator = rng.choices("+-x", weights=[45, 40, 15])[0]
    a, b = _operands(rng, operator)
    result = {"+": a + b, "-": a - b, "x": a * b}[operator]
    question = rng.choice(_WORDINGS[operator]).format(a=a, b=b)
    answer = f"{_working(operator, a, b)}{a} {operator} {b} = {result}"
    checker = {"kind": "number", "value": result}
    return Sample("arithmetic", _key(operator, a, b, question), question, answer, checker)


def _working(operator: str, a: int, b: int) -> str:
    """The ones, then the tens with what is carried or borrowed: each step is a small table."""
    if max(a, b) < 10:
        return ""
    (a_tens, a_ones), (b_tens, b_ones) = divmod(a, 10), divmod(b, 10)
    if operator == "+":
        ones = a_ones + b_ones
        carry = ones // 10
        return f"{a_ones} + {b_ones} = {ones}, {a_tens} + {b_tens} + {carry} = " + (
            f"{a_tens + b_tens + carry}, so "
        )
    borrow = int(a_ones < b_ones)
    top = a_ones + 10 * borrow
    return f"{top} - {b_ones} = {top - b_ones}, {a_tens} - {b_tens} - {borrow} = " + (
        f"{a_tens - b_tens - borrow}, so "
    )


def _operands(rng: Random, operator: str) -> tuple[int, int]:
    top = 9 if operator == "x" or rng.random() < 0.1 else 99
    a, b = rng.randint(0, top), rng.randint(0, top)
    return (max(a, b), min(a, b)) if operator == "-" else (a, b)


def _key(operator: str, a: int, b: int, question: str) -> str:
    """A product can only be learned by heart, so there the wording is what is held out."""
    if operator == "x":
        return normalize(question)
    low, high = sorted((a, b))
    return f"{low} {operator} {high}"
