//! `listen` and `public_url`: where the program is found.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::http::Uri;
use axum::http::uri::{Authority, Scheme};

/// Only this machine, until somebody says otherwise.
pub(super) const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8787);

/// Reads `ADDRESS:PORT`. A name would depend on who resolves it.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it must be ADDRESS:PORT, such as 127.0.0.1:8787 or [::]:8787".to_owned())
}

/// What the program is called from outside: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    scheme: Scheme,
    authority: Authority,
}

impl PublicUrl {
    /// Reads `https://HOST` or `https://HOST:PORT`, also with `http`.
    ///
    /// # Errors
    /// A sentence, for any other text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || "it must be http:// or https://, a host and perhaps a port, and nothing else".to_owned();
        let parts = text.parse::<Uri>().map_err(|_| wrong())?.into_parts();
        let scheme = parts.scheme.filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let authority = parts.authority.filter(|authority| !authority.as_str().contains('@'));
        let is_bare = parts.path_and_query.is_none_or(|path| path.as_str() == "/");
        match (scheme, authority) {
            (Some(scheme), Some(authority)) if is_bare => Ok(Self { scheme, authority }),
            _ => Err(wrong()),
        }
    }

    /// Host and port, as they stand in `Host`. A port that the scheme implies is left out.
    pub(crate) fn host(&self) -> String {
        let implied = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        let host = self.authority.host().to_ascii_lowercase();
        match self.authority.port_u16() {
            Some(port) if port != implied => format!("{host}:{port}"),
            Some(_) | None => host,
        }
    }

    /// Scheme, host and port, as they stand in `Origin`.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_is_an_origin_and_nothing_else() {
        for (text, origin) in [
            ("https://agents.example", "https://agents.example"),
            ("https://Agents.Example:443/", "https://agents.example"),
            ("http://agents.example:8787", "http://agents.example:8787"),
        ] {
            assert_eq!(PublicUrl::parse(text).unwrap().origin(), origin);
        }
        for text in
            ["", "agents.example", "ftp://x", "https://", "https://x/app", "https://u@x", "https://x?y"]
        {
            assert!(PublicUrl::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn listening_takes_an_address_and_a_port() {
        assert_eq!(listen("127.0.0.1:8787"), Ok(LISTEN_DEFAULT));
        assert!(listen("[::]:80").is_ok());
        for text in ["localhost:8787", "8787", ":8787", "127.0.0.1"] {
            assert!(listen(text).is_err(), "{text:?}");
        }
    }
}
