//! A server that plays prepared answers, one connection each, and keeps every request as it was sent.
//!
//! Not here: HTTP beyond what one client of one test needs.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens on one connection after the request was read.
#[derive(Clone, Debug)]
pub(crate) enum Play {
    /// These bytes, then the end of the connection.
    Send(Vec<u8>),
    /// These bytes, and then nothing for as long as the client waits.
    SendAndHang(Vec<u8>),
    /// An answer that goes on for as long as the client reads.
    Endless,
}

/// The server. It ends with the test's runtime.
#[derive(Debug)]
pub(crate) struct ScriptedServer {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    pub(crate) async fn start(plays: Vec<Play>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut plays = plays.into_iter();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                kept.lock().unwrap().push(request);
                // More requests than plays are kept too, so that a test sees them.
                let play = plays.next().unwrap_or(Play::Send(Vec::new()));
                tokio::spawn(perform(play, stream));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far, head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A whole answer. `headers` are lines that each end in CR LF.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

async fn perform(play: Play, mut stream: TcpStream) {
    match play {
        // The client may be gone before everything is written; that is for the test to judge.
        Play::Send(bytes) => _ = stream.write_all(&bytes).await,
        Play::SendAndHang(bytes) => {
            _ = stream.write_all(&bytes).await;
            std::future::pending::<()>().await;
        }
        Play::Endless => {
            let piece = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            while stream.write_all(&piece).await.is_ok() {}
        }
    }
}

/// Reads the head, and as much body as it announces.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap();
        assert_ne!(read, 0, "the request broke off: {text}");
        bytes.extend_from_slice(&piece[..read]);
    }
}
