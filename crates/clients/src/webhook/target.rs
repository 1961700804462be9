//! Where a webhook may go, judged by the text of its address and what the operator declares.
//!
//! Invariant: unless they are declared, only https and only names of the public tree pass. One parser judges and
//! connects. Not here: what a name resolves to (`resolve`).

use reqwest::Url;

use crate::fetch_page::HostName;

/// An address that may be told something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookTarget {
    url: Url,
    private: bool,
}

/// Why a text is no target. It is not repeated: the path of an address may be a secret (S5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotATarget {
    /// No address at all, or one that parsers may read differently.
    #[error("it must be a whole address, https://HOST/PATH")]
    Syntax,
    /// Another scheme.
    #[error("it must be an https address")]
    Scheme,
    /// `http` without its declaration.
    #[error("over http anybody on the way reads along; use https, or declare cleartext = true")]
    Cleartext,
    /// A name or a password before the host.
    #[error("an address holds no credential; the receiver knows a message by its signature")]
    Credentials,
    /// A private target without its declaration.
    #[error(
        "the host is an IP address, or a name of this machine or of a private network; use its public name, or \
         declare private = true"
    )]
    Private,
}

impl WebhookTarget {
    /// Reads an address. `private`: it may be one of this machine or of a private network. `cleartext`: it may be
    /// `http`.
    ///
    /// # Errors
    /// [`NotATarget`].
    pub fn parse(text: &str, private: bool, cleartext: bool) -> Result<Self, NotATarget> {
        if text.chars().any(|sign| sign.is_control() || sign.is_whitespace() || sign == '\\') {
            return Err(NotATarget::Syntax);
        }
        let mut url = Url::parse(text).map_err(|_| NotATarget::Syntax)?;
        match url.scheme() {
            "https" => {}
            "http" if cleartext => {}
            "http" => return Err(NotATarget::Cleartext),
            _ => return Err(NotATarget::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NotATarget::Credentials);
        }
        if !private && HostName::of(&url).is_none() {
            return Err(NotATarget::Private);
        }
        url.set_fragment(None);
        Ok(Self { url, private })
    }

    /// Whether it may be of this machine or of a private network.
    pub(super) fn is_private(&self) -> bool {
        self.private
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tp50_tp54_tp56_only_https_and_public_names_are_told_undeclared() {
        for text in ["https://desk.example/hook", "https://DESK.example:8443/a?b=c"] {
            assert!(WebhookTarget::parse(text, false, false).is_ok(), "{text}");
        }
        for host in [
            "127.0.0.1",
            "127.1",
            "0x7f000001",
            "2130706433",
            "0.0.0.0",
            "10.0.0.1",
            "169.254.169.254",
            "[::1]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::7f00:1]",
            "localhost",
            "localhost.",
            "desk",
            "desk.internal",
            "desk.home.arpa",
        ] {
            let text = format!("https://{host}/hook");
            assert_eq!(WebhookTarget::parse(&text, false, false), Err(NotATarget::Private), "{text}");
            assert!(WebhookTarget::parse(&text, true, false).is_ok(), "{text}");
        }
        for (text, why) in [
            ("http://desk.example/", NotATarget::Cleartext),
            ("ftp://desk.example/", NotATarget::Scheme),
            ("file:///etc/passwd", NotATarget::Scheme),
            ("data:,x", NotATarget::Scheme),
            ("https://good.example@evil.example/", NotATarget::Credentials),
            ("https://good.example\\@evil.example/", NotATarget::Syntax),
            ("https://desk.example/\u{7}", NotATarget::Syntax),
            ("desk.example", NotATarget::Syntax),
            ("", NotATarget::Syntax),
        ] {
            assert_eq!(WebhookTarget::parse(text, false, false), Err(why), "{text:?}");
        }
        assert!(WebhookTarget::parse("http://desk.example/", false, true).is_ok());
        assert_eq!(WebhookTarget::parse("http://10.0.0.1/", false, true), Err(NotATarget::Private));
    }
}
