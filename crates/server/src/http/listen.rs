//! Connections: taken, served, and brought to an end.
//!
//! Invariant: a connection that sends its head slowly, or a head that is too large, is ended and costs nobody else; there
//! are never more connections than [`CONNECTIONS_MAX`]. Not here: bodies (`body`), and what is asked for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use countersign::Clock;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// The most connections at once; more wait to be taken.
const CONNECTIONS_MAX: usize = 4096;
/// How long a head may take to arrive, and how long a connection may stand idle between two requests.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// The most lines of a head.
const HEADERS_MAX: usize = 100;
/// The most bytes of a head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when no connection can be taken: too many files are open.
const PAUSE: Duration = Duration::from_millis(100);
/// How long answers that are under way may take at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// From where a request comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Serves until `end`; then answers what was asked, and takes nothing more.
pub(crate) async fn listen(
    listener: TcpListener,
    router: Router,
    clock: Arc<dyn Clock>,
    end: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    loop {
        let taken = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, taken) = tokio::select! {
            taken = taken => taken,
            () = end.cancelled() => break,
        };
        let Ok((stream, peer)) = taken else {
            clock.sleep(PAUSE).await;
            continue;
        };
        // A small answer is sent at once. Where that cannot be said, it comes a little later.
        _ = stream.set_nodelay(true);
        let peer = Peer(peer.ip());
        let service = router.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request
        });
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let served = graceful.watch(connection);
        tokio::spawn(async move {
            // How a connection ended is of no concern to anybody else.
            drop(served.await);
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = clock.sleep(LAST_ANSWERS) => {}
    }
}
