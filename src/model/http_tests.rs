use std::net::SocketAddr;

use http_body_util::BodyExt;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const SOON: Duration = Duration::from_secs(30);

#[test]
fn plain_http_stays_on_this_machine() {
    for good in
        ["http://127.0.0.1:80", "http://127.9.9.9", "http://localhost:1/", "http://[::1]:5/v", "http://LocalHost"]
    {
        assert!(BaseUrl::parse(good).is_ok_and(|u| u.is_loopback()), "{good}");
    }
    for good in ["https://api.example.com", " https://10.0.0.1:8443/gate/way/ "] {
        assert!(BaseUrl::parse(good).is_ok_and(|u| !u.is_loopback()), "{good}");
    }
    let bad = [
        ("http://example.com", "another machine"),
        ("http://10.0.0.1:80", "another machine"),
        ("http://localhost.example.com", "another machine"),
        ("http://0.0.0.0:1", "another machine"),
        ("http://127.0.0.1@example.com/", "user name"),
        ("https://me:pw@example.com", "user name"),
        ("https://example.com/?a=b", "query"),
        ("ftp://localhost", "begins neither"),
        ("localhost:80", ""),
        ("/v1", "no host"),
        ("", ""),
        ("http://", ""),
    ];
    for (text, part) in bad {
        let error = BaseUrl::parse(text).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("can't be used") && error.contains(part), "{text}: {error}");
        assert!(!error.contains("pw"), "{error}");
    }
}

#[test]
fn paths_are_put_below_the_address() {
    let join = |base: &str| BaseUrl::parse(base).map(|u| u.join("/v1/messages")).unwrap();
    assert_eq!(join("https://a.example/"), "https://a.example/v1/messages");
    assert_eq!(join("http://localhost:1/gate//"), "http://localhost:1/gate/v1/messages");
}

#[test]
fn a_proxy_is_for_https_to_other_machines_alone() {
    let tcp = HttpConnector::new();
    let found = |base: &str, https: &str, bypass: &str| {
        let proxy = Proxy { https: Some(https.into()), bypass: Some(bypass.into()) };
        tunnel(&BaseUrl::parse(base).unwrap(), &proxy, &tcp).map(|t| t.is_some())
    };
    assert_eq!(found("https://a.example", "http://p:3128", ""), Ok(true));
    assert_eq!(found("https://a.example", "p:3128", "b.example"), Ok(true));
    assert_eq!(found("https://a.example", "http://p:3128", "b.example,.example"), Ok(false));
    assert_eq!(found("http://localhost:1", "http://p:3128", ""), Ok(false));
    assert_eq!(found("https://localhost:1", "http://p:3128", ""), Ok(false));
    assert!(found("https://a.example", "socks5://p:1", "").is_err_and(|e| e.contains("http://")));
    assert!(found("https://a.example", "https://me:pw@p:1", "").is_err_and(|e| !e.contains("pw")));
    let none = Proxy::default();
    assert!(tunnel(&BaseUrl::parse("https://a.example").unwrap(), &none, &tcp).unwrap().is_none());
}

#[test]
fn roots_are_there_on_any_machine() {
    assert!(!roots().is_empty());
    assert!(tls_config(roots()).is_ok());
}

/// Reads up to the blank line after a request's head.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

/// A TLS server for `host` that greets once per connection, and its certificate.
async fn tls_server(host: &str) -> (SocketAddr, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust us ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            head(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
            let _ = stream.shutdown().await;
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    (address, roots)
}

async fn get(base: &str, proxy: Proxy, roots: RootCertStore, deadline: Duration) -> Result<String, SendError> {
    let base = BaseUrl::parse(base).unwrap();
    let connector = Connector::new(&base, &proxy, deadline, roots).unwrap();
    let request = Request::get(base.join("/x")).body(Full::default()).unwrap();
    let http = Http { base, proxy, connect: deadline, client: OnceLock::from(Ok(client(connector))) };
    let body = http.send(request).await?.into_body().collect().await.unwrap().to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn https_works_with_a_trusted_certificate_and_fails_with_another() {
    let (address, roots) = tls_server("localhost").await;
    let base = format!("https://localhost:{}", address.port());
    assert_eq!(get(&base, Proxy::default(), roots, SOON).await.unwrap(), "hello");
    let (_, others) = tls_server("localhost").await;
    for untrusted in [others, super::roots()] {
        let error = get(&base, Proxy::default(), untrusted, SOON).await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_gets_a_tunnel_with_its_password() {
    let (server, roots) = tls_server("api.test.invalid").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let (asked, mut heads) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            asked.send(head(&mut stream).await).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut there = TcpStream::connect(server).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut there).await;
        }
    });
    let proxy = Proxy { https: Some(format!("http://me:pw@{proxy}")), bypass: None };
    assert_eq!(get("https://api.test.invalid", proxy, roots, SOON).await.unwrap(), "hello");
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with("CONNECT api.test.invalid:443 "), "{head}");
    assert!(head.to_lowercase().contains("proxy-authorization: basic bwu6chc="), "{head}");
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_given_up() {
    // Accepts (by the backlog), and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let error = get(&base, Proxy::default(), RootCertStore::empty(), Duration::from_millis(100)).await;
    assert!(error.as_ref().is_err_and(|e| e.to_string().contains("no connection within 100ms")), "{error:?}");
}
