"""The small word pools that skills share. Each word becomes one token."""

FRUITS = [
    "apple", "banana", "cherry", "date", "fig", "grape", "kiwi", "lemon", "mango", "orange",
    "peach", "plum",
]  # fmt: skip
ANIMALS = [
    "bear", "bee", "cat", "dog", "fox", "goat", "horse", "lion", "mouse", "rabbit", "tiger", "wolf",
]  # fmt: skip
NAMES = [
    "Adam", "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ivan", "Julia",
    "Karl", "Laura", "Mark", "Nina", "Oscar", "Paul", "Rosa", "Sara", "Tom",
]  # fmt: skip
COLOURS = ["red", "blue", "green", "yellow", "black", "white", "brown", "pink"]
THINGS = [
    "car", "door", "cup", "hat", "ball", "book", "chair", "lamp", "box", "bag", "boat", "house",
]  # fmt: skip
PLACES = [
    "kitchen", "garden", "office", "school", "park", "library", "station", "market", "museum",
    "forest",
]  # fmt: skip
CITIES = ["Rome", "Paris", "Berlin", "Madrid", "Vienna", "Oslo", "Lisbon", "Prague"]
LETTERS = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = list("0123456789")
