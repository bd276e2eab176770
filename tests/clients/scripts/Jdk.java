// The JDK's own HttpClient as it comes: it asks for h2c with every request (LangChain4j and Spring AI
// use it so). JSON is written and read by hand: there is no library in a JDK.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

class Jdk {
    static final String BASE = System.getenv("BASE_URL");
    static final String MODEL = System.getenv("MODEL");
    static final HttpClient CLIENT = HttpClient.newHttpClient();
    static final String QUESTION = "{\"role\":\"user\",\"content\":\"What is the weather in Rome?\"}";
    static final String TOOLS =
        "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","
        + "\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"],\"additionalProperties\":false}}}]";

    public static void main(String[] arguments) {
        attempt("chat", Jdk::chat);
        attempt("stream", Jdk::stream);
        attempt("tools", Jdk::tools);
        attempt("refusal", Jdk::refusal);
    }

    static String chat() throws Exception {
        holds(get("/models").body(), MODEL);
        holds(post(body("{\"role\":\"user\",\"content\":\"What is 2 + 3?\"}", "")).body(), "5");
        return "";
    }

    static String stream() throws Exception {
        String told = post(body("{\"role\":\"user\",\"content\":\"What is 2 + 3?\"}", ",\"stream\":true")).body();
        holds(told, "data: [DONE]");
        return "";
    }

    // Two turns, the second body sent in chunks.
    static String tools() throws Exception {
        String first = post(body(QUESTION, ",\"tools\":" + TOOLS)).body();
        holds(first, "\"finish_reason\":\"tool_calls\"");
        String call = found(first, "\"tool_calls\":(\\[\\{.*?\\}\\])");
        String id = found(call, "\"id\":\"([^\"]*)\"");
        String turns = QUESTION + ",{\"role\":\"assistant\",\"tool_calls\":" + call + "},"
            + "{\"role\":\"tool\",\"tool_call_id\":\"" + id + "\",\"content\":\"12 degrees\"}";
        byte[] second = body(turns, ",\"tools\":" + TOOLS).getBytes(StandardCharsets.UTF_8);
        HttpRequest.BodyPublisher chunked =
            HttpRequest.BodyPublishers.ofInputStream(() -> new java.io.ByteArrayInputStream(second));
        holds(send(request("/chat/completions").POST(chunked).build()).body(), "12 degrees");
        return "";
    }

    static String refusal() throws Exception {
        HttpResponse<String> answer = post(body(QUESTION, ",\"store\":true"));
        check(answer.statusCode() == 400, "not refused: " + answer.statusCode());
        holds(answer.body(), "\"param\":\"store\"");
        return "400: store";
    }

    static String body(String turns, String more) {
        return "{\"model\":\"" + MODEL + "\",\"temperature\":0,\"messages\":[" + turns + "]" + more + "}";
    }

    static HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(BASE + path))
            .header("authorization", "Bearer " + System.getenv("API_KEY"))
            .header("content-type", "application/json");
    }

    static HttpResponse<String> get(String path) throws Exception {
        return send(request(path).method("GET", HttpRequest.BodyPublishers.ofString("")).build());
    }

    static HttpResponse<String> post(String body) throws Exception {
        return send(request("/chat/completions").POST(HttpRequest.BodyPublishers.ofString(body)).build());
    }

    static HttpResponse<String> send(HttpRequest request) throws Exception {
        return CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
    }

    static String found(String text, String pattern) {
        Matcher match = Pattern.compile(pattern, Pattern.DOTALL).matcher(text);
        check(match.find(), pattern + " is not in " + text);
        return match.group(1);
    }

    static void holds(String text, String wanted) {
        check(text.contains(wanted), wanted + " is not in " + text);
    }

    static void check(boolean claim, String words) {
        if (!claim) throw new IllegalStateException(words);
    }

    static void attempt(String feature, Callable<String> trial) {
        try {
            tell(feature, "works", trial.call());
        } catch (Exception error) {
            tell(feature, "fails", error.toString());
        }
    }

    static void tell(String feature, String outcome, String detail) {
        String plain = detail.replaceAll("[\\s\"\\\\]+", " ");
        plain = plain.substring(0, Math.min(300, plain.length()));
        System.out.printf("{\"feature\": \"%s\", \"outcome\": \"%s\", \"detail\": \"%s\"}%n", feature, outcome, plain);
    }
}
