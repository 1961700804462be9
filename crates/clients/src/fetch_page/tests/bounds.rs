//! Servers that give too much, too slowly, or nothing.

use super::super::prose::TEXT_BYTES_MAX;
use super::super::visit::BODY_BYTES_MAX;
use super::*;

/// The head of an answer whose body the server does not announce.
fn head(media: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\nconnection: close\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn case_c53_an_endless_page_ends_early() {
    for media in ["text/plain", "text/html"] {
        let bench = Bench::new(vec![Play::Endless(head(media))]).await;
        let text = bench.fetch("https://docs.rs/").await.unwrap();
        assert!(
            text.contains(&format!("Note: only the first {BODY_BYTES_MAX} bytes of the page were read.\n"))
        );
        assert!(text.contains("Note: only the first part of the text is shown.\n"));
        assert!(text.len() < TEXT_BYTES_MAX + 1000, "{}", text.len());
        // What was on its way when the client went away, beside what it read.
        assert!(bench.server.sent() < 64 * 1024 * 1024, "{}", bench.server.sent());
    }
}

#[tokio::test]
async fn a_page_that_says_it_has_100_mb_is_read_no_further() {
    let long = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100000000\r\n\r\n";
    let bench = Bench::new(vec![Play::Endless(long.to_vec())]).await;
    assert!(bench.fetch("https://docs.rs/").await.unwrap().contains("only the first"));
    assert!(bench.server.sent() < 64 * 1024 * 1024, "{}", bench.server.sent());
}

#[tokio::test]
async fn a_page_of_exactly_the_bound_is_whole() {
    let spaces = |count| [b"a".as_slice(), &vec![b' '; count]].concat();
    let whole = Bench::new(vec![page("text/html", &spaces(BODY_BYTES_MAX - 1))]).await;
    assert_eq!(whole.fetch("https://docs.rs/").await.unwrap(), "URL: https://docs.rs/\n\na");
    let more = Bench::new(vec![page("text/html", &spaces(BODY_BYTES_MAX))]).await;
    assert!(more.fetch("https://docs.rs/").await.unwrap().contains("only the first"));
}

#[tokio::test]
async fn slow_servers_end_with_the_deadline() {
    let drip = [head("text/plain"), b"a".to_vec()].concat();
    for begun in [drip, head("text/plain"), b"HTTP/1.1 200 OK\r\n".to_vec(), Vec::new()] {
        let mut bench = Bench::new(vec![Play::SendAndHang(begun)]).await;
        bench.deadline = SHORT;
        assert_eq!(
            bench.fetch("https://docs.rs/").await.unwrap_err(),
            "The page could not be fetched in time."
        );
    }
}

#[tokio::test]
async fn the_deadline_is_one_over_all_hops() {
    let mut bench =
        Bench::new(vec![redirect("302 Found", "/a"), Play::SendAndHang(head("text/plain"))]).await;
    bench.deadline = SHORT;
    assert_eq!(bench.fetch("https://docs.rs/").await.unwrap_err(), "The page could not be fetched in time.");
}

#[tokio::test]
async fn a_compressed_page_is_not_read() {
    for coding in
        ["gzip", "br", "deflate", "zstd", "gzip, identity", "GZIP", "identity\r\ncontent-encoding: gzip"]
    {
        let bomb =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-encoding: {coding}\r\n\r\n");
        // Whoever waited for the body would wait for ever.
        let bench = Bench::new(vec![Play::SendAndHang(bomb.into_bytes())]).await;
        let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
        assert_eq!(refused, "The page is compressed although it was asked for as it is, so it was not read.");
    }
    for coding in ["gzip, chunked", "GZIP\r\ntransfer-encoding: chunked", "deflate, chunked"] {
        let on_the_way =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ntransfer-encoding: {coding}\r\n\r\n");
        let bench = Bench::new(vec![Play::SendAndHang(on_the_way.into_bytes())]).await;
        let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
        assert_eq!(refused, "The page is compressed although it was asked for as it is, so it was not read.");
    }
    let plain = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: Identity\r\ncontent-length: 1\r\n\r\na";
    let bench = Bench::new(vec![Play::Send(plain.into())]).await;
    assert_eq!(bench.fetch("https://docs.rs/").await.unwrap(), "URL: https://docs.rs/\n\na");
}

#[tokio::test]
async fn what_is_no_answer_is_answered() {
    let broken = "The exchange broke off before the page was there.";
    let flood = |lines: usize, long: usize| {
        let lines =
            (0..lines).map(|number| format!("x{number}: {}\r\n", "y".repeat(long))).collect::<String>();
        format!("HTTP/1.1 200 OK\r\n{lines}\r\n").into_bytes()
    };
    for bytes in [
        Vec::new(),
        b"SSH-2.0-OpenSSH\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n\r\nabc".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"
            .to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        flood(1, 1_000_000),
        flood(100_000, 1),
    ] {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let refused = Bench::new(vec![Play::Send(bytes)]).await.fetch("https://docs.rs/").await;
        assert_eq!(refused.as_deref(), Err(&broken.to_owned()), "{start}");
    }
}

#[tokio::test]
async fn answers_before_the_answer_have_no_more_time_than_it() {
    for interim in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"] {
        let mut bench = Bench::new(vec![Play::Repeats(Vec::new(), interim.repeat(1000).into_bytes())]).await;
        bench.deadline = SHORT;
        let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
        assert_eq!(refused, "The page could not be fetched in time.", "{interim}");
    }
}

#[tokio::test]
async fn what_stands_around_the_pieces_of_a_page_is_bounded() {
    let chunked = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
    for (begun, flood) in [
        ("1;a", "=b;c"),
        ("1;a=b\r\na\r\n", "1;a=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\na\r\n"),
        ("1\r\na\r\n0\r\n", "x: y\r\n"),
        ("1\r\na\r\n0\r\nx: ", "yyyyyyyy"),
    ] {
        let first = [chunked.as_slice(), begun.as_bytes()].concat();
        let bench = Bench::new(vec![Play::Repeats(first, flood.repeat(1000).into_bytes())]).await;
        let refused = bench.fetch("https://docs.rs/").await;
        assert_eq!(refused.unwrap_err(), "The exchange broke off before the page was there.", "{begun:?}");
        assert!(bench.server.sent() < 64 * 1024 * 1024, "{begun:?}: {}", bench.server.sent());
    }
}
