use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::{Request, Uri};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::connector::{Connector, roots, tls_config};
use super::{Client, SendError};
use crate::core::provider::Proxy;

const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_proxy_is_for_https_to_other_machines_alone() {
    let found = |to: &str, https: &str, bypass: &str| {
        let proxy = Proxy { https: Some(https.into()), bypass: Some(bypass.into()) };
        let to: Uri = to.parse().unwrap();
        Connector::new(&proxy, SOON).tunnel(&to).map(|t| t.is_some())
    };
    assert_eq!(found("https://a.example", "http://p:3128", ""), Ok(true));
    assert_eq!(found("https://a.example", "p:3128", "b.example"), Ok(true));
    assert_eq!(found("https://a.example", "http://p:3128", "b.example,.example"), Ok(false));
    assert_eq!(found("http://localhost:1", "http://p:3128", ""), Ok(false));
    assert_eq!(found("http://a.example", "http://p:3128", ""), Ok(false));
    assert_eq!(found("https://localhost:1", "http://p:3128", ""), Ok(false));
    assert_eq!(found("http://localhost:1", "socks5://p:1", ""), Ok(false));
    assert!(found("https://a.example", "socks5://p:1", "").is_err_and(|e| e.contains("http://")));
    assert!(found("https://a.example", "https://me:pw@p:1", "").is_err_and(|e| !e.contains("pw")));
    let none = Connector::new(&Proxy::default(), SOON);
    assert!(none.tunnel(&Uri::from_static("https://a.example")).is_ok_and(|t| t.is_none()));
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
    let client = Client::over(Connector::new(&proxy, deadline).trusting(roots));
    let request = Request::get(format!("{base}/x")).body(Full::default()).unwrap();
    let body = client.send(request).await?.into_body().collect().await.unwrap().to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn https_works_with_a_trusted_certificate_and_fails_with_another() {
    let (address, roots) = tls_server("localhost").await;
    let base = format!("https://localhost:{}", address.port());
    assert_eq!(get(&base, Proxy::default(), roots, SOON).await.unwrap(), "hello");
    let (_, others) = tls_server("localhost").await;
    for untrusted in [others, super::connector::roots()] {
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

#[tokio::test]
async fn a_proxy_that_cant_be_used_is_no_passing_failure() {
    let proxy = Proxy { https: Some("socks5://p:1".into()), bypass: None };
    let client = Client::new(proxy, SOON);
    let request = |to: &str| Request::get(to).body(Full::default()).unwrap();
    assert!(matches!(client.send(request("https://a.invalid/")).await, Err(SendError::Unusable(_))));
    assert!(matches!(client.send(request("http://127.0.0.1:1/")).await, Err(SendError::Failed(_))));
}
