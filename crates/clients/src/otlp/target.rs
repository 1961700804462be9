//! Where traces may go, and what is sent along so that they are taken.
//!
//! Invariant: a host on another machine is spoken to in TLS unless the operator declares otherwise: a header may hold a
//! credential. Any address will do, also a private one, which is where collectors are.

use std::net::{Ipv4Addr, Ipv6Addr};

use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// What every OTLP address of traces over HTTP ends with.
const PATH: &str = "/v1/traces";

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorTarget(Url);

/// Why a text is no address of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotACollector {
    /// No address at all, or of another scheme.
    #[error(
        "it must be where a collector takes OTLP over HTTP, such as http://127.0.0.1:4318 or https://HOST/PATH"
    )]
    Syntax,
    /// `http` to another machine without its declaration.
    #[error("over http anybody on the way reads along; use https, or declare cleartext = true")]
    Cleartext,
    /// A name or a password before the host, or something after the path.
    #[error(
        "it holds no credential and no question mark; headers come from the variable that headers_env names"
    )]
    Credentials,
}

impl CollectorTarget {
    /// Reads an address: up to the path below which each kind of telemetry has its own, or the whole one of traces.
    /// `cleartext`: it may be `http` on another machine.
    ///
    /// # Errors
    /// [`NotACollector`].
    pub fn parse(text: &str, cleartext: bool) -> Result<Self, NotACollector> {
        if text.chars().any(|sign| sign.is_control() || sign.is_whitespace() || sign == '\\') {
            return Err(NotACollector::Syntax);
        }
        let mut url = Url::parse(text).map_err(|_| NotACollector::Syntax)?;
        match url.scheme() {
            "https" => {}
            "http" if cleartext || is_here(&url) => {}
            "http" => return Err(NotACollector::Cleartext),
            _ => return Err(NotACollector::Syntax),
        }
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(NotACollector::Credentials);
        }
        let path = url.path().trim_end_matches('/');
        let path = format!("{}{PATH}", path.strip_suffix(PATH).unwrap_or(path));
        url.set_path(&path);
        Ok(Self(url))
    }

    pub(super) fn url(&self) -> &Url {
        &self.0
    }
}

/// Whether what is sent there does not leave this machine.
fn is_here(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || bare.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        || bare.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback())
}

/// What is sent along with every request. It does not show itself.
#[derive(Clone, Debug, Default)]
pub struct CollectorHeaders(HeaderMap);

/// Why a text is no list of headers. It is not repeated (S5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it must be NAME=VALUE, several with commas between; blanks, commas and the like in a value as %20, %2C"
)]
pub struct NotHeaders;

impl CollectorHeaders {
    /// Reads `name=value,name=value`, as other programs read theirs from `OTEL_EXPORTER_OTLP_HEADERS`.
    ///
    /// # Errors
    /// [`NotHeaders`].
    pub fn parse(text: &str) -> Result<Self, NotHeaders> {
        let mut headers = HeaderMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(NotHeaders)?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| NotHeaders)?;
            let value: Vec<u8> = percent_decode_str(value.trim()).collect();
            let mut value = HeaderValue::from_bytes(&value).map_err(|_| NotHeaders)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self(headers))
    }

    pub(super) fn into_map(self) -> HeaderMap {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_this_machine_in_tls_or_declared() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("http://[::1]:4318/otel/", "http://[::1]:4318/otel/v1/traces"),
            ("https://collector.example/v1/traces", "https://collector.example/v1/traces"),
            ("https://10.0.0.7/otel", "https://10.0.0.7/otel/v1/traces"),
        ] {
            let target = CollectorTarget::parse(text, false).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(target.url().as_str(), url);
        }
        for (text, why) in [
            ("http://collector.example:4318", NotACollector::Cleartext),
            ("http://127.0.0.1.example", NotACollector::Cleartext),
            ("http://10.0.0.7", NotACollector::Cleartext),
            ("grpc://127.0.0.1:4317", NotACollector::Syntax),
            ("127.0.0.1:4318", NotACollector::Syntax),
            ("localhost:4318", NotACollector::Syntax),
            ("", NotACollector::Syntax),
            ("https://a b", NotACollector::Syntax),
            ("https://me:secret@collector.example", NotACollector::Credentials),
            ("https://collector.example/?key=secret", NotACollector::Credentials),
            ("https://collector.example/#x", NotACollector::Credentials),
        ] {
            assert_eq!(CollectorTarget::parse(text, false), Err(why), "{text:?}");
        }
        assert!(CollectorTarget::parse("http://collector.example:4318", true).is_ok());
    }

    #[test]
    fn rule_s5_headers_are_read_as_elsewhere_and_do_not_show_themselves() {
        let headers = CollectorHeaders::parse("authorization=Bearer%20to=ken, x-scope = 7,").unwrap();
        assert_eq!(headers.0["authorization"], "Bearer to=ken");
        assert_eq!(headers.0["x-scope"], "7");
        assert!(!format!("{headers:?}").contains("to=ken"), "{headers:?}");
        assert!(CollectorHeaders::parse("").unwrap().0.is_empty());
        for wrong in ["token", "=x", "a b=c", "x=%0a", "x=\u{7f}"] {
            assert_eq!(CollectorHeaders::parse(wrong).unwrap_err(), NotHeaders, "{wrong:?}");
        }
    }
}
