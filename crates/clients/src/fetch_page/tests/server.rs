//! A server over TLS that plays prepared answers, one connection each, and keeps every request as it was sent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, KeyPair};
use reqwest::Certificate;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What happens on one connection after the request was read.
#[derive(Clone, Debug)]
pub(super) enum Play {
    /// These bytes, then the end of the connection.
    Send(Vec<u8>),
    /// These bytes, and then nothing for as long as the client waits.
    SendAndHang(Vec<u8>),
    /// These bytes, and then others for as long as the client reads.
    Endless(Vec<u8>),
    /// The same with these others, again and again.
    Repeats(Vec<u8>, Vec<u8>),
}

/// A certificate that its own key signed, and the key.
pub(super) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(super) fn of(names: &[&str]) -> Self {
        Self::signed(&params(names))
    }

    pub(super) fn expired(names: &[&str]) -> Self {
        let mut params = params(names);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        Self::signed(&params)
    }

    fn signed(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }

    pub(super) fn certificate(&self) -> Certificate {
        Certificate::from_der(&self.certificate).unwrap()
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// The server. It ends with the test's runtime.
pub(super) struct Server {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) async fn start(identity: Identity, plays: Vec<Play>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            sent: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, sent, requests) =
            (Arc::clone(&server.connections), Arc::clone(&server.sent), Arc::clone(&server.requests));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate], identity.key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            let mut plays = plays.into_iter();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::Relaxed);
                // A client that does not trust the certificate goes away here.
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let Some(request) = read_request(&mut stream).await else { continue };
                requests.lock().unwrap().push(request);
                // More requests than plays are kept too, so that a test sees them.
                let play = plays.next().unwrap_or(Play::Send(Vec::new()));
                tokio::spawn(perform(play, stream, Arc::clone(&sent)));
            }
        });
        server
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many bytes of endless answers were taken from it.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn perform(play: Play, mut stream: impl AsyncWrite + Unpin, sent: Arc<AtomicU64>) {
    // The client may be gone before everything is written; that is for the test to judge.
    match play {
        Play::Send(bytes) => {
            _ = stream.write_all(&bytes).await;
            _ = stream.shutdown().await;
        }
        Play::SendAndHang(bytes) => {
            _ = stream.write_all(&bytes).await;
            _ = stream.flush().await;
            std::future::pending::<()>().await;
        }
        Play::Endless(bytes) => repeat(stream, &bytes, &b"a ".repeat(0x8000), &sent).await,
        Play::Repeats(bytes, piece) => repeat(stream, &bytes, &piece, &sent).await,
    }
}

async fn repeat(mut stream: impl AsyncWrite + Unpin, first: &[u8], piece: &[u8], sent: &AtomicU64) {
    _ = stream.write_all(first).await;
    while stream.write_all(piece).await.is_ok() {
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
}

/// Reads a head. `None`: the client went away before its end.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
    }
    String::from_utf8(bytes).ok()
}
