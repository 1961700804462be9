//! The way to a page: one request after another, until a server answers with something other than a redirect.
//!
//! Invariant: every hop is judged like the first and has a connection of its own, and of an answer no more is read
//! than [`BODY_BYTES_MAX`]. Nothing is decoded here, and no cookie, credential or referrer exists. Not here: the
//! deadline over all of it, the meaning of what was read.

use std::error::Error;

use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION, TRANSFER_ENCODING,
};
use reqwest::{Client, Response, StatusCode, Url};

use super::failure::Failure;
use super::host::HostPattern;
use super::media::MediaType;
use super::target::Target;
use crate::resolve::NotPublic;

/// The most redirects on the way to a page.
pub(crate) const REDIRECTS_MAX: usize = 5;
/// The most that is read of a page, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 5 * 1024 * 1024;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Page {
    /// Where it was found, after all redirects.
    pub(crate) url: Url,
    pub(crate) media: MediaType,
    pub(crate) body: Vec<u8>,
    /// Whether there was more than [`BODY_BYTES_MAX`].
    pub(crate) is_cut: bool,
}

/// Goes to a page.
pub(crate) async fn visit(client: &Client, first: Target, hosts: &[HostPattern]) -> Result<Page, Failure> {
    let mut target = first;
    for _ in 0..=REDIRECTS_MAX {
        let response = ask(client, &target).await?;
        let status = response.status();
        if !is_redirect(status) {
            return read(response, target).await;
        }
        let Some(location) = header(&response, &LOCATION)? else {
            return Err(Failure::Status(status.as_u16()));
        };
        target =
            target.redirect(&location, hosts).map_err(|failure| Failure::Redirected(Box::new(failure)))?;
    }
    Err(Failure::Redirects)
}

async fn ask(client: &Client, target: &Target) -> Result<Response, Failure> {
    let request = client
        .get(target.url().clone())
        .header(ACCEPT, "text/html, application/xhtml+xml, text/plain, text/markdown, application/json;q=0.9")
        .header(ACCEPT_ENCODING, "identity");
    request.send().await.map_err(|error| {
        if was_refused(&error) {
            Failure::NotPublic(target.host().clone())
        } else if error.is_connect() {
            Failure::Unreachable(target.host().clone())
        } else {
            Failure::Broken
        }
    })
}

/// Whether our own resolver refused.
fn was_refused(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<NotPublic>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Those that name another address for the same page; a GET stays a GET over all of them.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

async fn read(mut response: Response, target: Target) -> Result<Page, Failure> {
    if !matches!(response.status().as_u16(), 200 | 203) {
        return Err(Failure::Status(response.status().as_u16()));
    }
    // A server may also compress what it sends on the way: it was not asked to, and nobody would take that off.
    for (header, plain) in [(CONTENT_ENCODING, "identity"), (TRANSFER_ENCODING, "chunked")] {
        let is_plain = |coding: &str| coding.trim().is_empty() || coding.trim().eq_ignore_ascii_case(plain);
        if !response.headers().get_all(header).iter().all(|coding| coding.to_str().is_ok_and(is_plain)) {
            return Err(Failure::Compressed);
        }
    }
    let media = MediaType::parse(header(&response, &CONTENT_TYPE)?.as_deref())?;
    let (mut body, mut is_cut) = (Vec::new(), false);
    while let Some(chunk) = response.chunk().await.map_err(|_| Failure::Broken)? {
        let room = BODY_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            is_cut = true;
            break;
        }
    }
    Ok(Page { url: target.url().clone(), media, body, is_cut })
}

/// The one value of a header. Two that differ, or one that is no text, are nothing to go by.
fn header(response: &Response, name: &HeaderName) -> Result<Option<String>, Failure> {
    let mut values = response.headers().get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.any(|other| other != value) {
        return Err(Failure::Broken);
    }
    String::from_utf8(value.as_bytes().to_vec()).map(Some).map_err(|_| Failure::Broken)
}
