//! Where a request may go, judged by the text of an address and the operator's list.
//!
//! Invariant: one parser, the one that the client itself uses, so what was judged is what is connected to. Texts that
//! parsers are known to read differently (control characters, `\`, `@`, `%` in the authority) are refused before they
//! are parsed. Not here: what a name resolves to (`resolve`).

use reqwest::Url;

use super::failure::Failure;
use super::host::{HostName, HostPattern};

/// The longest address.
pub(crate) const URL_BYTES_MAX: usize = 4096;

const SCHEME: &str = "https";

/// An address that may be asked for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    url: Url,
    host: HostName,
}

impl Target {
    /// Reads what a model asks for: always a whole address.
    pub(crate) fn parse(text: &str, hosts: &[HostPattern]) -> Result<Self, Failure> {
        refuse_odd(text)?;
        let (scheme, rest) = text.split_once("://").ok_or(Failure::NotHttps)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(Failure::NotHttps);
        }
        refuse_odd_authority(rest)?;
        Self::judge(Url::parse(text).map_err(|_| Failure::Odd)?, hosts)
    }

    /// Reads where a server redirects to: an address, or a part of one that counts from this one.
    pub(crate) fn redirect(&self, text: &str, hosts: &[HostPattern]) -> Result<Self, Failure> {
        refuse_odd(text)?;
        if let Some((_, rest)) = text.split_once("//").filter(|(before, _)| !before.contains(['/', '?', '#']))
        {
            refuse_odd_authority(rest)?;
        }
        Self::judge(self.url.join(text).map_err(|_| Failure::Odd)?, hosts)
    }

    fn judge(mut url: Url, hosts: &[HostPattern]) -> Result<Self, Failure> {
        if hosts.is_empty() {
            return Err(Failure::NoHosts);
        }
        if url.scheme() != SCHEME {
            return Err(Failure::NotHttps);
        }
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(Failure::TooLong);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Failure::Credentials);
        }
        if url.port().is_some() {
            return Err(Failure::Port);
        }
        let host = HostName::of(&url).ok_or(Failure::NoName)?;
        if !hosts.iter().any(|pattern| pattern.covers(&host)) {
            return Err(Failure::NotListed(host));
        }
        url.set_fragment(None);
        Ok(Self { url, host })
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn host(&self) -> &HostName {
        &self.host
    }
}

/// Parsers drop some of these and turn others into slashes.
fn refuse_odd(text: &str) -> Result<(), Failure> {
    if text.len() > URL_BYTES_MAX {
        return Err(Failure::TooLong);
    }
    if text.chars().any(|sign| sign.is_control() || sign.is_whitespace() || sign == '\\') {
        return Err(Failure::Odd);
    }
    Ok(())
}

/// The authority stands right after the two slashes: a name, perhaps a port.
fn refuse_odd_authority(rest: &str) -> Result<(), Failure> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if authority.contains('@') {
        return Err(Failure::Credentials);
    }
    if authority.is_empty() || authority.contains('%') {
        return Err(Failure::Odd);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(patterns: &[&str]) -> Vec<HostPattern> {
        patterns.iter().map(|pattern| HostPattern::parse(pattern).unwrap()).collect()
    }

    fn parse(text: &str) -> Result<String, Failure> {
        let target = Target::parse(text, &hosts(&["docs.rs", "*.example.org"]))?;
        Ok(target.url().to_string())
    }

    #[test]
    fn a_listed_host_may_be_asked() {
        for (text, url) in [
            ("https://docs.rs", "https://docs.rs/"),
            ("HTTPS://DOCS.RS/a?b=c%20d#e", "https://docs.rs/a?b=c%20d"),
            ("https://docs.rs:443/a", "https://docs.rs/a"),
            ("https://docs.rs/../a", "https://docs.rs/a"),
            ("https://docs.rs/@a", "https://docs.rs/@a"),
            ("https://docs.rs/?u=http://127.0.0.1/", "https://docs.rs/?u=http://127.0.0.1/"),
            ("https://a.b.example.org/ä", "https://a.b.example.org/%C3%A4"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(url), "{text}");
        }
    }

    #[test]
    fn no_list_no_host() {
        assert_eq!(Target::parse("https://docs.rs/", &[]), Err(Failure::NoHosts));
    }

    #[test]
    fn tp50_no_spelling_of_an_address_may_be_asked() {
        for authority in [
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "0x7f000001",
            "2130706433",
            "127.1",
            "0177.1",
            "[64:ff9b::7f00:1]",
            "[::1]",
            "0.0.0.0",
            "localhost",
            "localhost.",
            "a.localhost",
            "8.8.8.8",
            "①②⑦.0.0.1",
            "metadata.google.internal",
            "intranet",
            "docs.rs.",
            "a..example.org",
            "_x.example.org",
        ] {
            assert_eq!(parse(&format!("https://{authority}/")), Err(Failure::NoName), "{authority}");
        }
    }

    #[test]
    fn tp54_odd_authorities_are_refused() {
        for (text, failure) in [
            ("https://docs.rs@evil.example/", Failure::Credentials),
            ("https://a:b@docs.rs/", Failure::Credentials),
            ("https://@docs.rs/", Failure::Credentials),
            ("https://docs.rs\\@evil.example/", Failure::Odd),
            ("https:\\\\docs.rs/", Failure::Odd),
            ("https://evil.example\\.docs.rs/", Failure::Odd),
            ("https://docs%2ers/", Failure::Odd),
            ("https://do\tcs.rs/", Failure::Odd),
            ("https://docs.rs/\r\nHost: evil.example", Failure::Odd),
            ("https://docs.rs/\0", Failure::Odd),
            (" https://docs.rs/", Failure::Odd),
            ("https:///docs.rs/", Failure::Odd),
            ("https:docs.rs/", Failure::NotHttps),
            ("docs.rs", Failure::NotHttps),
            ("//docs.rs/", Failure::NotHttps),
            ("", Failure::NotHttps),
            ("https://docs.rs:8443/", Failure::Port),
            ("https://docs.rs:80/", Failure::Port),
            ("https://docs.rs:99999/", Failure::Odd),
        ] {
            assert_eq!(parse(text), Err(failure), "{text:?}");
        }
        for long in [
            format!("https://{}.example.org/", "a".repeat(8192)),
            format!("https://docs.rs/{}", "ä".repeat(1500)),
        ] {
            assert_eq!(parse(&long), Err(Failure::TooLong));
        }
        let Err(Failure::NotListed(host)) = parse("https://evil.example/") else { panic!("it must refuse") };
        assert_eq!(host.to_string(), "evil.example");
    }

    #[test]
    fn tp56_other_schemes_are_refused() {
        for text in [
            "http://docs.rs/",
            "file:///etc/passwd",
            "file://docs.rs/x",
            "gopher://docs.rs/",
            "ftp://docs.rs/",
            "data:text/html,x",
            "javascript:alert(1)",
            "wss://docs.rs/",
            "blob:https://docs.rs/x",
            "view-source:https://docs.rs/",
        ] {
            assert_eq!(parse(text), Err(Failure::NotHttps), "{text}");
        }
    }

    #[test]
    fn tp53_a_redirect_is_judged_like_a_request() {
        let hosts = hosts(&["docs.rs", "*.example.org"]);
        let from = Target::parse("https://docs.rs/a/b?c", &hosts).unwrap();
        let to = |text: &str| from.redirect(text, &hosts).map(|target| target.url().to_string());
        for (text, url) in [
            ("/x", "https://docs.rs/x"),
            ("x", "https://docs.rs/a/x"),
            ("?x", "https://docs.rs/a/b?x"),
            ("x?y=//@z", "https://docs.rs/a/x?y=//@z"),
            ("//a.example.org/x", "https://a.example.org/x"),
            ("https://a.example.org/x", "https://a.example.org/x"),
        ] {
            assert_eq!(to(text).as_deref(), Ok(url), "{text}");
        }
        for (text, failure) in [
            ("http://docs.rs/x", Failure::NotHttps),
            ("file:/etc/passwd", Failure::NotHttps),
            ("file:///etc/passwd", Failure::Odd),
            ("data:text/plain,x", Failure::NotHttps),
            ("https://127.0.0.1/", Failure::NoName),
            ("//[::1]/", Failure::NoName),
            ("//docs.rs@evil.example/", Failure::Credentials),
            ("/\\evil.example/", Failure::Odd),
            ("https://docs.rs:22/", Failure::Port),
        ] {
            assert_eq!(to(text), Err(failure), "{text}");
        }
        assert!(matches!(to("//evil.example/"), Err(Failure::NotListed(_))));
        // However many slashes: what is judged is what the parser made of it.
        assert!(matches!(to("https:///evil.example/"), Err(Failure::Odd)));
        assert_eq!(to("https:/evil.example/").as_deref(), Ok("https://docs.rs/evil.example/"));
    }
}
