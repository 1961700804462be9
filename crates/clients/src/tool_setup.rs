//! Why an operator's declaration is no tool that can be called, and the check that two kinds of tool share.

use countersign::NotAName;
use reqwest::Url;

/// Why a tool cannot be set up. Names what is wrong without quoting it (S5).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolSetupError {
    /// Not an address, or of another scheme.
    #[error("`{key}` must be an http or https address")]
    Url {
        /// The key of the declaration.
        key: &'static str,
    },
    /// A user name or a password in the address.
    #[error("`{key}` must not hold a credential")]
    CredentialInUrl {
        /// The key of the declaration.
        key: &'static str,
    },
    /// A command without a program.
    #[error("`command` must name a program")]
    NoProgram,
    /// A NUL character, which no command line can carry.
    #[error("`command` must not hold a NUL character")]
    NulInCommand,
    /// A name of our own broke the rules of the contract; the names are constants, so it does not happen.
    #[error("the tool has no name")]
    Name(#[from] NotAName),
    /// The HTTP client.
    #[error("the HTTP client cannot be set up")]
    Http(#[from] reqwest::Error),
}

/// The address under a key of the declaration.
pub(crate) fn address(key: &'static str, text: &str) -> Result<Url, ToolSetupError> {
    let mut url = Url::parse(text).map_err(|_| ToolSetupError::Url { key })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ToolSetupError::Url { key });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ToolSetupError::CredentialInUrl { key });
    }
    url.set_fragment(None);
    Ok(url)
}
