//! Which requests are let in at all: by the host they ask for and the page they come from.
//!
//! Invariant: a web page of somebody else reaches nothing here, on the loopback address neither. The host is an address, or
//! `localhost`, or that of `public_url`: any other name may be one that somebody else made to lead here. A page that is
//! named is ours. There is no CORS.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::App;
use super::problem::{Answer, Problem};
use crate::config::PublicUrl;

/// Lets a request in, or says why not.
pub(crate) async fn door(State(app): State<App>, request: Request, next: Next) -> Answer<Response> {
    may_enter(request.headers(), app.public_url())?;
    Ok(next.run(request).await)
}

fn may_enter(headers: &HeaderMap, public: Option<&PublicUrl>) -> Answer<()> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let is_public = public.is_some_and(|public| public.host() == without_implied_port(&host, public));
    if hosts.next().is_some() || !(is_public || is_address(&host)) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "unknown_host",
            "this is not asked for by an address, by localhost or by the host of public_url; set public_url in the \
             configuration to what it is called from outside",
        ));
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
    let is_public = public.is_some_and(|public| public.origin() == origin);
    let is_here = is_address(&host) && origin == format!("http://{host}");
    if origins.next().is_none() && (is_public || is_here) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "foreign_origin",
        "this comes from a web page of somebody else, which may not do anything here",
    ))
}

/// An address or `localhost`, with or without a port.
fn is_address(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix(':').or(rest.is_empty().then_some(""))),
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, Some("")),
        },
    };
    let is_port = port.is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok());
    is_port && (name == "localhost" || name.parse::<IpAddr>().is_ok())
}

/// The host as `public_url` would write it.
fn without_implied_port(host: &str, public: &PublicUrl) -> String {
    let implied = if public.origin().starts_with("https:") { ":443" } else { ":80" };
    host.strip_suffix(implied).unwrap_or(host).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enters(host: &str, origin: Option<&str>, public: Option<&str>) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        let public = public.map(|public| PublicUrl::parse(public).unwrap());
        may_enter(&headers, public.as_ref()).map_or_else(|problem| problem.code(), |()| "")
    }

    #[test]
    fn a_name_that_somebody_else_made_lead_here_reaches_nothing() {
        for host in ["127.0.0.1:8787", "localhost:8787", "[::1]:8787", "10.1.2.3", "[::1]"] {
            assert_eq!(enters(host, None, None), "", "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8787",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "localhost:x",
        ] {
            assert_eq!(enters(host, None, None), "unknown_host", "{host}");
        }
        let public = Some("https://agents.example");
        assert_eq!(enters("agents.example", None, public), "");
        assert_eq!(enters("Agents.example:443", None, public), "");
        assert_eq!(enters("agents.example:80", None, public), "unknown_host");
        assert_eq!(enters("other.example", None, public), "unknown_host");
    }

    #[test]
    fn a_page_of_somebody_else_reaches_nothing() {
        let public = Some("https://agents.example");
        assert_eq!(enters("127.0.0.1:8787", Some("http://127.0.0.1:8787"), None), "");
        assert_eq!(enters("agents.example", Some("https://agents.example"), public), "");
        for origin in [
            "null",
            "https://evil.example",
            "http://127.0.0.1:9999",
            "https://127.0.0.1:8787",
            "http://agents.example",
        ] {
            assert_eq!(enters("127.0.0.1:8787", Some(origin), public), "foreign_origin", "{origin}");
        }
    }
}
