use http_body_util::Full;
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::core::provider::Proxy;
use crate::model::http::{BaseUrl, Http};

const SOON: Duration = Duration::from_secs(30);

/// Runs the server on a playbook file until `with` is done.
async fn serving<T>(yaml: &str, check: Check, with: impl AsyncFnOnce(Http) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.yaml");
    std::fs::write(&path, yaml).unwrap();
    let options = ServeOptions { playbook: path.display().to_string(), port: 0, check };
    let cancel = CancellationToken::new();
    let (told, address) = oneshot::channel();
    let server = run(options, &cancel, |url| told.send(url.to_owned()).unwrap());
    let client = async {
        let base = BaseUrl::parse(&address.await.unwrap()).unwrap();
        let done = with(Http::new(base, Proxy::default(), SOON)).await;
        cancel.cancel();
        done
    };
    let (served, done) = timeout(SOON, async { tokio::join!(server, client) }).await.unwrap();
    served.unwrap();
    done
}

async fn ask(http: &Http, method: Method, path: &str, body: impl Into<Bytes>) -> (u16, Result<Value, String>) {
    let mut request = HttpRequest::new(Full::new(body.into()));
    *request.method_mut() = method;
    *request.uri_mut() = http.base().join(path).parse().unwrap();
    let response = http.send(request).await.unwrap();
    let status = response.status().as_u16();
    match response.into_body().collect().await {
        Ok(body) => (status, serde_json::from_slice(&body.to_bytes()).map_err(|e| e.to_string())),
        Err(error) => (status, Err(error.to_string())),
    }
}

fn body(stream: bool) -> String {
    json!({"model": "m", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "x".repeat(400)}]})
        .to_string()
}

#[tokio::test]
async fn answers_come_whole_too_and_tokens_are_counted() {
    let yaml = "agents: [{turns: [{thinking: hm, text: hi, tools: [{name: Bash}]}]}]";
    serving(yaml, Check::Lenient, async |http| {
        let (status, answer) = ask(&http, Method::POST, "/v1/messages", body(false)).await;
        let answer = answer.unwrap();
        assert_eq!((status, &answer["type"], &answer["role"]), (200, &json!("message"), &json!("assistant")));
        let kinds: Vec<&Value> = answer["content"].as_array().unwrap().iter().map(|b| &b["type"]).collect();
        assert_eq!(kinds, ["thinking", "text", "tool_use"]);
        assert_eq!((&answer["stop_reason"], &answer["usage"]["input_tokens"]), (&json!("tool_use"), &json!(100)));
        let without = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(40)}]}).to_string();
        let counted = ask(&http, Method::POST, "/v1/messages/count_tokens", without).await;
        assert_eq!(counted, (200, Ok(json!({"input_tokens": 10}))));
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_or_not_readable_is_refused_in_the_apis_form() {
    serving("agents: [{}]", Check::Lenient, async |http| {
        let kind = |(status, body): (u16, Result<Value, String>)| {
            let body = body.unwrap();
            assert_eq!(body["type"], "error");
            (status, body["error"]["type"].as_str().unwrap().to_owned())
        };
        let error = |status: u16, kind: &str| (status, kind.to_owned());
        assert_eq!(kind(ask(&http, Method::GET, "/v1/messages", "").await), error(404, "not_found_error"));
        assert_eq!(kind(ask(&http, Method::POST, "/v1/complete", "").await), error(404, "not_found_error"));
        for broken in [&b"{"[..], b"\xff", b"[]", b"{\"model\":\"m\"}"] {
            assert_eq!(
                kind(ask(&http, Method::POST, "/v1/messages", broken).await),
                error(400, "invalid_request_error")
            );
        }
        let huge = vec![b' '; MODEL_REQUEST_BYTES + 1];
        assert_eq!(kind(ask(&http, Method::POST, "/v1/messages", huge).await), error(413, "request_too_large"));
    })
    .await;
}

#[tokio::test]
async fn only_a_strict_server_asks_for_a_key() {
    let ask = async |http: Http| ask(&http, Method::POST, "/v1/messages", body(false)).await.0;
    assert_eq!(serving("agents: [{}]", Check::Lenient, ask).await, 200);
    assert_eq!(serving("agents: [{}]", Check::Strict, ask).await, 401);
}

#[tokio::test]
async fn a_fault_breaks_an_answer_that_is_not_streamed() {
    serving("agents: [{turns: [{text: hi, fault: cut_in_tool}]}]", Check::Lenient, async |http| {
        assert!(matches!(ask(&http, Method::POST, "/v1/messages", body(false)).await, (200, Err(_))));
        assert!(matches!(ask(&http, Method::POST, "/v1/messages", body(false)).await, (200, Ok(_))));
    })
    .await;
}

#[tokio::test]
async fn a_taken_port_and_a_broken_playbook_are_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let start = async |playbook: &str| {
        let options = ServeOptions { playbook: playbook.to_owned(), port, check: Check::Strict };
        let cancel = CancellationToken::new();
        timeout(SOON, run(options, &cancel, |_| panic!("not ready"))).await.unwrap().unwrap_err()
    };
    let error = start("survey").await;
    assert!(matches!(&error, ServeError::Listen { port: p, .. } if *p == port), "{error}");
    assert!(matches!(start("/no/such/book.yaml").await, ServeError::Playbook(_)));
}
