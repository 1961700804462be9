//! The hosts that an operator lists.
//!
//! Invariant: a pattern and a host are compared in one form, lower-cased ASCII as the parser of addresses writes it,
//! and only names of the public tree have that form here: no IP address in any spelling, no single label, no name of
//! a private network. Not here: what a name resolves to.

use std::fmt;

use reqwest::Url;

/// The longest name that DNS knows.
const NAME_BYTES_MAX: usize = 253;
/// The longest label.
const LABEL_BYTES_MAX: usize = 63;

/// Top labels that no public name ends in: RFC 6761, RFC 6762 with its appendix G, RFC 7686, and ICANN's `internal`.
const LOCAL: [&str; 10] =
    ["localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "onion", "invalid"];
/// The name of home networks, RFC 8375.
const LOCAL_ARPA: &str = "home.arpa";

/// Second labels under which, below a country's label, everybody may have a name.
const SHARED: [&str; 10] = ["ac", "co", "com", "edu", "go", "gov", "ne", "net", "or", "org"];

/// One host, or all names below a domain.
///
/// ```
/// use countersign_clients::HostPattern;
///
/// assert_eq!(HostPattern::parse("Docs.rs")?.to_string(), "docs.rs");
/// assert_eq!(HostPattern::parse("*.example.org")?.to_string(), "*.example.org");
/// assert!(HostPattern::parse("127.0.0.1").is_err());
/// assert!(HostPattern::parse("*.org").is_err());
/// # Ok::<(), countersign_clients::NotAHostPattern>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    name: String,
    below: bool,
}

/// Why a text lists no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAHostPattern {
    /// Not a name, or with more than a name.
    #[error("a host is listed by its name alone, such as `docs.rs` or `*.example.org`")]
    Syntax,
    /// An IP address, in whatever spelling.
    #[error("a host is listed by its name, not by an IP address")]
    Address,
    /// A name of this machine or of a private network.
    #[error("the name belongs to this machine or to a private network")]
    Local,
    /// A star anywhere else, or over a domain in which everybody may have a name.
    #[error(
        "a star stands for all names below one owner's domain: `*.example.org`, not `*`, `*.org` or `*.co.uk`"
    )]
    Star,
}

impl HostPattern {
    /// Reads `docs.rs`, that host alone, or `*.example.org`, every name below `example.org` and not itself.
    ///
    /// # Errors
    /// [`NotAHostPattern`].
    pub fn parse(text: &str) -> Result<Self, NotAHostPattern> {
        let (name, below) = match text.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (text, false),
        };
        if name.contains('*') {
            return Err(NotAHostPattern::Star);
        }
        let name = match canonical(name) {
            // Too few labels behind a star are the star's fault.
            Err(NotAHostPattern::Syntax) if below && !name.contains('.') => {
                return Err(NotAHostPattern::Star);
            }
            other => other?,
        };
        if below && is_shared(&name) {
            return Err(NotAHostPattern::Star);
        }
        Ok(Self { name, below })
    }

    /// Whether this host is listed.
    pub(crate) fn covers(&self, host: &HostName) -> bool {
        if !self.below {
            return host.0 == self.name;
        }
        host.0.strip_suffix(&self.name).is_some_and(|before| before.len() > 1 && before.ends_with('.'))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", if self.below { "*." } else { "" }, self.name)
    }
}

/// The host of an address, in the form that patterns are compared in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName(String);

impl HostName {
    /// The host of an address; `None` when it is none that a pattern could list.
    pub(crate) fn of(url: &Url) -> Option<Self> {
        url.domain().filter(|name| is_name(name) && !is_local(name)).map(|name| Self(name.to_owned()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The one form of a name, made by the parser that will read the addresses.
fn canonical(name: &str) -> Result<String, NotAHostPattern> {
    let fits = |sign: char| !sign.is_ascii() || sign.is_ascii_alphanumeric() || matches!(sign, '-' | '.');
    if name.contains(':') || name.starts_with('[') {
        return Err(NotAHostPattern::Address);
    }
    if name.is_empty() || !name.chars().all(fits) {
        return Err(NotAHostPattern::Syntax);
    }
    let url = Url::parse(&format!("https://{name}/")).map_err(|_| NotAHostPattern::Syntax)?;
    let host = url.domain().ok_or(NotAHostPattern::Address)?;
    // A final dot hides nothing here and is refused as syntax elsewhere.
    if is_local(host.trim_end_matches('.')) {
        return Err(NotAHostPattern::Local);
    }
    if !is_name(host) {
        return Err(NotAHostPattern::Syntax);
    }
    Ok(host.to_owned())
}

/// At least two labels of letters, digits and inner hyphens.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= NAME_BYTES_MAX && name.contains('.') && name.split('.').all(is_label)
}

fn is_local(name: &str) -> bool {
    let top = name.rsplit('.').next().unwrap_or(name);
    LOCAL.contains(&top)
        || name.strip_suffix(LOCAL_ARPA).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether everybody may have a name right below it.
fn is_shared(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(second, top)| top.len() == 2 && !top.contains('.') && SHARED.contains(&second))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::of(&Url::parse(&format!("https://{name}/")).unwrap()).unwrap()
    }

    #[test]
    fn patterns_are_kept_in_one_form() {
        for (text, form) in [
            ("docs.rs", "docs.rs"),
            ("DOCS.RS", "docs.rs"),
            ("*.Example.ORG", "*.example.org"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("*.bücher.example", "*.xn--bcher-kva.example"),
            ("a-b.c1.example", "a-b.c1.example"),
            ("*.nic.uk", "*.nic.uk"),
            ("co.uk", "co.uk"),
        ] {
            assert_eq!(HostPattern::parse(text).map(|pattern| pattern.to_string()).as_deref(), Ok(form));
        }
    }

    #[test]
    fn tp50_no_spelling_of_an_address_is_a_pattern() {
        for text in [
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "::ffff:169.254.169.254",
            "::1",
            "[::1]",
            "0x7f000001",
            "2130706433",
            "127.1",
            "0177.0.0.1",
            "0x7f.1",
            "[64:ff9b::7f00:1]",
            "0.0.0.0",
            "8.8.8.8",
            "①②⑦.0.0.1",
            "127。0。0。1",
            "*.127.0.0.1",
            "*.1",
            "127.0.0.1.",
        ] {
            assert_eq!(HostPattern::parse(text), Err(NotAHostPattern::Address), "{text}");
        }
        for text in [
            "localhost",
            "localhost.",
            "LOCALHOST",
            "ｌocalhost",
            "a.localhost",
            "*.a.localhost",
            "printer.local",
            "metadata.google.internal",
            "*.corp",
            "nas.home.arpa",
            "home.arpa",
            "router.lan",
            "x.onion",
        ] {
            assert_eq!(HostPattern::parse(text), Err(NotAHostPattern::Local), "{text}");
        }
    }

    #[test]
    fn case_c45_a_star_stands_only_below_a_domain_of_one_owner() {
        for text in [
            "*",
            "*.*",
            "*.org",
            "*.rs",
            "**.example.org",
            "*docs.rs",
            "docs.*",
            "*.*.example.org",
            "a.*.example.org",
            "*.co.uk",
            "*.com.au",
            "*example.org",
        ] {
            assert_eq!(HostPattern::parse(text), Err(NotAHostPattern::Star), "{text}");
        }
    }

    #[test]
    fn tp54_a_pattern_is_a_name_and_nothing_more() {
        let long = format!("{}.example", "a".repeat(8192));
        let longer = format!("{}example", "a.".repeat(200));
        for text in [
            "",
            " ",
            ".",
            "..",
            "*.",
            "docs",
            "docs.rs.",
            ".docs.rs",
            "a..b",
            "-a.example",
            "a-.example",
            " docs.rs",
            "docs.rs ",
            "docs.rs/",
            "docs.rs/x",
            "https://docs.rs",
            "a@docs.rs",
            "docs.rs\\evil",
            "docs.rs\n",
            "do\tcs.rs",
            "docs%2ers",
            "a_b.example",
            "docs.rs?x",
            "docs.rs#x",
            "docs.rs\0",
            "xn--.example",
            &long,
            &longer,
        ] {
            let refused = HostPattern::parse(text).unwrap_err();
            let expected =
                if text.contains(':') { NotAHostPattern::Address } else { NotAHostPattern::Syntax };
            let star = text == "*.";
            assert_eq!(refused, if star { NotAHostPattern::Star } else { expected }, "{text:?}");
        }
    }

    #[test]
    fn case_c45_a_pattern_covers_what_it_says_and_no_more() {
        let exact = HostPattern::parse("docs.rs").unwrap();
        let below = HostPattern::parse("*.example.org").unwrap();
        for (pattern, name, covered) in [
            (&exact, "docs.rs", true),
            (&exact, "DOCS.rs", true),
            (&exact, "a.docs.rs", false),
            (&exact, "xdocs.rs", false),
            (&exact, "docs.rs.evil.example", false),
            (&exact, "docs.rsx", false),
            (&below, "a.example.org", true),
            (&below, "a.b.example.org", true),
            (&below, "example.org", false),
            (&below, "evilexample.org", false),
            (&below, "a.example.org.evil.example", false),
            (&below, "a.example.orgs", false),
        ] {
            assert_eq!(pattern.covers(&host(name)), covered, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn case_c45_a_star_covers_exactly_the_names_that_end_in_its_domain(
            name in "([a-c]{1,2}\\.){1,4}(ab|ba)\\.example", domain in "(a|ab|ba|b)\\.example",
        ) {
            let pattern = HostPattern::parse(&format!("*.{domain}")).unwrap();
            let labels: Vec<&str> = name.split('.').collect();
            let wanted: Vec<&str> = domain.split('.').collect();
            prop_assert_eq!(
                pattern.covers(&host(&name)),
                labels.len() > wanted.len() && labels.ends_with(&wanted)
            );
        }

        #[test]
        fn no_text_is_a_pattern_that_covers_an_address_or_a_lone_label(text in "\\PC{0,24}") {
            if let Ok(pattern) = HostPattern::parse(&text) {
                let again = HostPattern::parse(&pattern.to_string());
                prop_assert_eq!(again.as_ref(), Ok(&pattern), "{}", text);
                prop_assert!(pattern.name.contains('.') && pattern.name.is_ascii());
                prop_assert!(pattern.name.parse::<std::net::IpAddr>().is_err());
            }
        }
    }
}
