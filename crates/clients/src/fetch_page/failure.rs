//! What `fetch_page` says when there is no page.
//!
//! Invariant: every sentence is for the model. Of what a server said it names a host, a status or a media type, each in
//! a form that can carry no more than that.

use countersign::ToolError;

use super::host::HostName;

/// Why there is no page.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("The arguments cannot be used: there must be one `url`, a text.")]
    Arguments,
    #[error("No host is allowed: the operator has listed none.")]
    NoHosts,
    #[error("The address has more than {max} bytes.", max = super::target::URL_BYTES_MAX)]
    TooLong,
    #[error("Only addresses that begin with https:// can be fetched.")]
    NotHttps,
    #[error("The address cannot be read: a plain https:// address with a host name is needed.")]
    Odd,
    #[error("The address must not hold a user name or a password.")]
    Credentials,
    #[error("Only the usual port of https can be used.")]
    Port,
    #[error("The host must be a public name, not an IP address or a name of a private network.")]
    NoName,
    #[error("The host {0} is not one that the operator allows.")]
    NotListed(HostName),
    #[error("The host {0} has an address that is not public, so it was not connected to.")]
    NotPublic(HostName),
    #[error("The host {0} could not be reached.")]
    Unreachable(HostName),
    #[error("The page could not be fetched in time.")]
    Deadline,
    #[error("The exchange broke off before the page was there.")]
    Broken,
    #[error("The server answered with status {0}.")]
    Status(u16),
    #[error("The page redirects more than {max} times.", max = super::visit::REDIRECTS_MAX)]
    Redirects,
    #[error("The page redirects elsewhere, which was not followed: {0}")]
    Redirected(#[source] Box<Failure>),
    #[error("The page is compressed although it was asked for as it is, so it was not read.")]
    Compressed,
    #[error("The page is of the type {0}; only text and HTML can be read.")]
    Type(String),
    #[error("The page does not say what type it is; only text and HTML can be read.")]
    NoType,
    #[error("The page could not be turned into text.")]
    Unreadable,
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        Self::answered(failure.to_string())
    }
}
