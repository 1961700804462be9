use std::sync::Mutex;

use async_trait::async_trait;
use countersign::SystemClock;
use countersign_clients::{CollectorTarget, SpanContext, SpanKind};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A clock on which no wait takes time; it remembers for how long somebody wanted to wait.
#[derive(Debug, Default)]
pub(super) struct Hasty(pub(super) Mutex<Vec<Duration>>);

#[async_trait]
impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.lock().unwrap().push(duration);
        tokio::task::yield_now().await;
    }

    fn random(&self) -> [u8; 16] {
        SystemClock.random()
    }
}

/// Somebody who traces, with a queue of so many, and its other end.
pub(super) fn kept(clock: Arc<dyn Clock>, places: usize) -> (Telemetry, mpsc::Receiver<Span>) {
    let (queue, spans) = mpsc::channel(places);
    let (flushes, _) = mpsc::channel(1);
    let tally = Arc::new(Tally { is_well: AtomicBool::new(true), ..Tally::default() });
    (Telemetry { clock, queue, flushes, tally }, spans)
}

fn span() -> Span {
    Span {
        context: SpanContext::root([1; 16], [2; 16]),
        parent: None,
        name: "x".to_owned(),
        kind: SpanKind::Internal,
        began: Timestamp::UNIX_EPOCH,
        ended: Timestamp::UNIX_EPOCH,
        attributes: Vec::new(),
        events: Vec::new(),
        links: Vec::new(),
        failed: false,
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length: usize =
        head.split_once("content-length: ").unwrap().1.lines().next().unwrap().parse().unwrap();
    request.len() >= head.len() + 4 + length
}

/// How many of some spans are sent and lost at a collector that gives these answers, and the waits meanwhile.
async fn sent_and_lost(spans: usize, answers: &'static [&'static str]) -> (String, Vec<Duration>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target =
        CollectorTarget::parse(&format!("http://{}", listener.local_addr().unwrap()), false).unwrap();
    let server = tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut heard, mut more) = (Vec::new(), [0; 4096]);
            while !is_whole(&heard) {
                let count = stream.read(&mut more).await.unwrap();
                heard.extend_from_slice(&more[..count]);
            }
            let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let clock = Arc::new(Hasty::default());
    let (telemetry, spans_kept) = kept(Arc::clone(&clock) as Arc<dyn Clock>, QUEUE);
    let metrics = Arc::new(Metrics::default());
    telemetry.count(&metrics);
    (0..spans).for_each(|_| telemetry.hand(span()));
    let (flushes, asked) = mpsc::channel(1);
    let exporter = Exporter {
        collector: Collector::new(target, CollectorHeaders::default(), Vec::new()),
        spans: spans_kept,
        asked,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        tally: Arc::clone(&telemetry.tally),
    };
    drop(telemetry);
    exporter.export().await;
    drop(flushes);
    server.abort();
    let waits = clock.0.lock().unwrap().clone();
    (metrics.text().unwrap(), waits)
}

#[tokio::test]
async fn a_collector_that_is_busy_is_asked_again_and_one_that_refuses_is_not() {
    let seconds = |waits: &[Duration]| waits.iter().map(Duration::as_secs).collect::<Vec<_>>();
    let (counted, waits) = sent_and_lost(3, &["503 X", "429 X\r\nRetry-After: 7", "200 OK"]).await;
    assert!(counted.contains("countersign_spans_total{outcome=\"sent\"} 3"), "{counted}");
    assert!(!counted.contains("outcome=\"lost\""), "{counted}");
    assert_eq!(seconds(&waits), [1, 1, 7], "others are waited for first");

    let (counted, waits) = sent_and_lost(2, &["503 X"; 5]).await;
    assert!(counted.contains("countersign_spans_total{outcome=\"lost\"} 2"), "{counted}");
    assert_eq!(seconds(&waits), [1, 1, 2, 4, 8]);

    let (counted, waits) = sent_and_lost(2, &["400 X"]).await;
    assert!(counted.contains("countersign_spans_total{outcome=\"lost\"} 2"), "{counted}");
    assert_eq!(seconds(&waits), [1]);
}

#[tokio::test]
async fn more_than_one_request_can_hold_goes_in_several() {
    let (counted, _) = sent_and_lost(BATCH + 1, &["200 OK"; 2]).await;
    assert!(counted.contains(&format!("outcome=\"sent\"}} {}", BATCH + 1)), "{counted}");
}

#[tokio::test]
async fn what_finds_no_place_is_counted_and_nobody_waits_for_one() {
    let (telemetry, mut spans) = kept(Arc::new(SystemClock), 2);
    let metrics = Arc::new(Metrics::default());
    telemetry.count(&metrics);
    (0..5).for_each(|_| telemetry.hand(span()));
    assert!(metrics.text().unwrap().contains("countersign_spans_total{outcome=\"lost\"} 3"));
    assert!(!telemetry.tally.is_well.load(Ordering::Relaxed));
    assert_eq!(spans.recv_many(&mut Vec::new(), 9).await, 2);
    // All is well when a batch was taken since which nothing was lost.
    telemetry.tally.taken(2);
    assert!(!telemetry.tally.is_well.load(Ordering::Relaxed));
    telemetry.tally.taken(2);
    assert!(telemetry.tally.is_well.load(Ordering::Relaxed));
}
