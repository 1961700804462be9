//! Where requests go, and where not.

use super::*;

const OK: &str = "URL: https://docs.rs/\n\nhere";

fn here() -> Play {
    page("text/plain", b"here")
}

#[tokio::test]
async fn a_request_says_nothing_of_its_sender() {
    let bench = Bench::new(vec![here()]).await;
    assert_eq!(bench.fetch("https://docs.rs/a?b#c").await.unwrap(), "URL: https://docs.rs/a?b\n\nhere");
    let head = bench.server.requests()[0].to_ascii_lowercase();
    let mut names: Vec<&str> =
        head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept-encoding", "host", "user-agent"]);
    assert!(head.starts_with("get /a?b http/1.1\r\n"), "{head}");
    assert!(
        head.contains("\r\nhost: docs.rs\r\n") && head.contains("\r\naccept-encoding: identity\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn tp50_the_real_rule_connects_to_nothing_private() {
    let mut bench = Bench::new(vec![here()]).await;
    bench.may_reach = is_public;
    let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
    assert_eq!(refused, "The host docs.rs has an address that is not public, so it was not connected to.");
    assert_eq!(bench.server.connections(), 0);
}

#[tokio::test]
async fn tp50_one_private_address_among_others_refuses_the_name() {
    for private in
        ["10.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "fd00:ec2::254"]
    {
        let bench = Bench::new(vec![here()]).await;
        bench.resolves("docs.rs", &[&[private]]);
        let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
        assert!(refused.contains("not public"), "{private}: {refused}");
        assert_eq!(bench.server.connections(), 0, "{private}");
    }
}

#[tokio::test]
async fn tp51_an_address_is_judged_anew_for_every_connection() {
    let bench = Bench::new(vec![redirect("302 Found", "/again"), here()]).await;
    bench.resolves("docs.rs", &[&[], &["10.0.0.7"]]);
    let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
    assert!(refused.contains("not public"), "{refused}");
    assert_eq!((bench.server.connections(), bench.server.requests().len()), (1, 1));
}

#[tokio::test]
async fn tp53_redirects_to_listed_hosts_are_followed_without_what_was_set() {
    let first = "HTTP/1.1 301 Moved\r\nlocation: https://a.example.org/x\r\nset-cookie: k=v; Secure\r\n\
                 content-length: 0\r\n\r\n";
    for status in ["302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let plays = vec![Play::Send(first.into()), redirect(status, "y?z"), here()];
        let bench = Bench::new(plays).await;
        assert_eq!(bench.fetch("https://docs.rs/").await.unwrap(), "URL: https://a.example.org/y?z\n\nhere");
        let requests = bench.server.requests();
        assert!(requests[2].starts_with("GET /y?z HTTP/1.1\r\n"), "{status}: {}", requests[2]);
        for request in &requests {
            let head = request.to_ascii_lowercase();
            assert!(!head.contains("cookie") && !head.contains("referer"), "{head}");
        }
        assert_eq!(bench.server.connections(), 3, "one connection for each hop");
    }
}

#[tokio::test]
async fn tp53_redirects_elsewhere_are_not_followed() {
    for (to, why) in [
        ("https://evil.example/", "The host evil.example is not one that the operator allows."),
        ("//evil.example/", "The host evil.example is not one that the operator allows."),
        ("http://docs.rs/", "Only addresses that begin with https:// can be fetched."),
        ("ftp://docs.rs/", "Only addresses that begin with https:// can be fetched."),
        (
            "https://127.0.0.1/",
            "The host must be a public name, not an IP address or a name of a private network.",
        ),
        (
            "https://localhost/",
            "The host must be a public name, not an IP address or a name of a private network.",
        ),
        ("https://docs.rs:8443/", "Only the usual port of https can be used."),
        ("https://docs.rs@evil.example/", "The address must not hold a user name or a password."),
        (
            "/\\evil.example/",
            "The address cannot be read: a plain https:// address with a host name is needed.",
        ),
    ] {
        let bench = Bench::new(vec![redirect("307 Temporary Redirect", to), here()]).await;
        let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
        assert_eq!(refused, format!("The page redirects elsewhere, which was not followed: {why}"), "{to}");
        assert_eq!(bench.server.connections(), 1, "{to}");
    }
    let bench = Bench::new(vec![redirect("302 Found", "https://inner.example.org/"), here()]).await;
    bench.resolves("inner.example.org", &[&["10.0.0.1"]]);
    let refused = bench.fetch("https://docs.rs/").await.unwrap_err();
    assert_eq!(
        refused,
        "The host inner.example.org has an address that is not public, so it was not connected to."
    );
    assert_eq!(bench.server.connections(), 1);
}

#[tokio::test]
async fn redirects_end_after_five() {
    let around = |count| vec![redirect("302 Found", "/"); count];
    let bench = Bench::new([around(5), vec![here()]].concat()).await;
    assert_eq!(bench.fetch("https://docs.rs/").await.unwrap(), OK);
    let bench = Bench::new(around(100)).await;
    assert_eq!(bench.fetch("https://docs.rs/").await.unwrap_err(), "The page redirects more than 5 times.");
    assert_eq!(bench.server.requests().len(), 6);
}

#[tokio::test]
async fn odd_redirects_are_answered() {
    let send = |head: &str| Play::Send(format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n").into_bytes());
    for (play, sentence) in [
        (send("302 Found"), "The server answered with status 302."),
        (send("304 Not Modified\r\nlocation: /x"), "The server answered with status 304."),
        (send("300 Multiple Choices\r\nlocation: /x"), "The server answered with status 300."),
        (
            send("302 Found\r\nlocation: /x\r\nlocation: //evil.example/"),
            "The exchange broke off before the page was there.",
        ),
    ] {
        let bench = Bench::new(vec![play, here()]).await;
        assert_eq!(bench.fetch("https://docs.rs/").await.unwrap_err(), sentence);
        assert_eq!(bench.server.requests().len(), 1);
    }
    let long = redirect("302 Found", &format!("/{}", "x".repeat(5000)));
    let refused = Bench::new(vec![long]).await.fetch("https://docs.rs/").await.unwrap_err();
    assert!(refused.ends_with("The address has more than 4096 bytes."), "{refused}");
}

#[tokio::test]
async fn tp58_a_certificate_that_is_not_trusted_is_refused() {
    let unreachable = Err("The host docs.rs could not be reached.".to_owned());
    let mut bench = Bench::new(vec![here()]).await;
    bench.trusted = Some(Identity::of(&["docs.rs"]).certificate());
    assert_eq!(bench.fetch("https://docs.rs/").await, unreachable, "signed by itself");
    let bench = Bench::with(Identity::of(&["a.example.org"]), vec![here()]).await;
    assert_eq!(bench.fetch("https://docs.rs/").await, unreachable, "of another name");
    let bench = Bench::with(Identity::expired(&["docs.rs"]), vec![here()]).await;
    assert_eq!(bench.fetch("https://docs.rs/").await, unreachable, "expired");
    assert!(bench.server.requests().is_empty());
}

#[tokio::test]
async fn a_name_that_nobody_knows_cannot_be_reached() {
    let refused = Bench::new(vec![]).await.fetch("https://unknown.example.org/").await.unwrap_err();
    assert_eq!(refused, "The host unknown.example.org could not be reached.");
}
