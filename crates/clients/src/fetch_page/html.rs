//! The text of an HTML page.
//!
//! Invariant: time grows with the length of the page and memory with the text, whatever the page does. That is why
//! there is no tree: a page of a few kilobytes can make its tree take minutes and gigabytes (elements that are reopened
//! in every paragraph, endless nesting), while a tokenizer reads each byte once. Nothing is run, loaded or followed.
//!
//! Not promised: what a browser would show. Style sheets and scripts are not looked at.

use std::convert::Infallible;

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};
use reqwest::Url;

use super::prose::{Gap, Prose};

/// The longest title, in characters.
const TITLE_CHARS_MAX: usize = 300;
/// The longest address that is shown behind a link, in bytes.
const LINK_BYTES_MAX: usize = 500;

/// What a page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) title: Option<String>,
    pub(crate) text: String,
    /// Whether the text is only its first part.
    pub(crate) is_cut: bool,
}

/// Reads a page that was found at `url`.
pub(crate) fn words(page: &str, url: &Url) -> Words {
    let mut listener = Listener::new(url.clone());
    let listen = |event: CallbackEvent<'_>, _: Span<()>| -> Option<Infallible> {
        listener.hear(&event);
        None
    };
    let mut emitter = CallbackEmitter::new(listen);
    emitter.naively_switch_states(true);
    let Ok(()) = Tokenizer::new_with_emitter(page, emitter).finish();
    let (text, is_cut) = listener.prose.end();
    Words { title: listener.title.filter(|title| !title.is_empty()), text, is_cut }
}

/// Which attribute of the tag that is being read matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Link,
    Base,
}

/// A link whose words are being read.
#[derive(Debug)]
struct Link {
    address: Option<String>,
    /// The length of the text before it.
    start: usize,
}

/// Makes text of what the tokenizer says, event by event.
#[derive(Debug)]
struct Listener {
    prose: Prose,
    /// What links count from.
    base: Url,
    title: Option<String>,
    in_title: bool,
    /// The element whose content is not text, and how many of its kind are open.
    hidden: Option<(Vec<u8>, usize)>,
    /// How many elements are open in which white space counts.
    verbatim: usize,
    link: Option<Link>,
    wanted: Wanted,
    /// Whether the next value is of the wanted attribute.
    is_wanted: bool,
}

impl Listener {
    fn new(base: Url) -> Self {
        Self {
            prose: Prose::new(),
            base,
            title: None,
            in_title: false,
            hidden: None,
            verbatim: 0,
            link: None,
            wanted: Wanted::Nothing,
            is_wanted: false,
        }
    }

    fn hear(&mut self, event: &CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => self.open(name),
            CallbackEvent::AttributeName { name } => {
                self.is_wanted = *name == b"href" && self.wanted != Wanted::Nothing;
            }
            CallbackEvent::AttributeValue { value } => self.attribute(value),
            CallbackEvent::CloseStartTag { self_closing } => {
                // In these two, and only in them, `/>` ends the element.
                if *self_closing && self.hidden.as_ref().is_some_and(|(name, _)| is_foreign(name)) {
                    self.close_hidden();
                }
                self.wanted = Wanted::Nothing;
            }
            CallbackEvent::EndTag { name } => self.close(name),
            CallbackEvent::String { value } => self.text(&String::from_utf8_lossy(value)),
            CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => {}
        }
    }

    fn open(&mut self, name: &[u8]) {
        (self.wanted, self.is_wanted) = (Wanted::Nothing, false);
        if let Some((hidden, depth)) = &mut self.hidden {
            if hidden == name {
                *depth += 1;
            }
            return;
        }
        if is_hidden(name) {
            self.hidden = Some((name.to_vec(), 1));
            return;
        }
        self.prose.gap(gap_around(name));
        match name {
            b"title" => self.in_title = true,
            b"base" => self.wanted = Wanted::Base,
            b"a" => {
                self.end_link();
                self.wanted = Wanted::Link;
                self.link = Some(Link { address: None, start: self.prose.len() });
            }
            b"li" => self.prose.mark("- "),
            b"h1" => self.prose.mark("# "),
            b"h2" => self.prose.mark("## "),
            b"h3" => self.prose.mark("### "),
            b"h4" | b"h5" | b"h6" => self.prose.mark("#### "),
            _ if is_verbatim(name) => self.verbatim += 1,
            _ => {}
        }
    }

    fn close(&mut self, name: &[u8]) {
        (self.wanted, self.is_wanted) = (Wanted::Nothing, false);
        if let Some((hidden, _)) = &self.hidden {
            if hidden == name {
                self.close_hidden();
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"a" => self.end_link(),
            b"li" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => self.prose.mark(""),
            _ if is_verbatim(name) => self.verbatim = self.verbatim.saturating_sub(1),
            _ => {}
        }
        self.prose.gap(gap_around(name));
    }

    fn close_hidden(&mut self) {
        self.hidden =
            self.hidden.take().filter(|(_, depth)| *depth > 1).map(|(name, depth)| (name, depth - 1));
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            self.title.get_or_insert_with(|| one_line(text));
        } else if self.hidden.is_none() && !self.prose.is_full() {
            match self.verbatim {
                0 => self.prose.words(text),
                _ => self.prose.verbatim(text),
            }
        }
    }

    fn attribute(&mut self, value: &[u8]) {
        // The first of a name is the one that counts.
        if !std::mem::take(&mut self.is_wanted) || self.prose.is_full() || value.len() > LINK_BYTES_MAX {
            return;
        }
        let value = String::from_utf8_lossy(value);
        let wanted = std::mem::replace(&mut self.wanted, Wanted::Nothing);
        let Ok(address) = self.base.join(value.trim()) else { return };
        if !matches!(address.scheme(), "http" | "https") {
            return;
        }
        match wanted {
            Wanted::Base => self.base = address,
            Wanted::Link
                if value.trim_start().starts_with('#') || address.as_str().len() > LINK_BYTES_MAX => {}
            Wanted::Link => {
                if let Some(link) = &mut self.link {
                    link.address = Some(address.into());
                }
            }
            Wanted::Nothing => {}
        }
    }

    /// Says where a link leads, if there were words to it.
    fn end_link(&mut self) {
        if let Some(Link { address: Some(address), start }) = self.link.take()
            && self.prose.len() > start
        {
            self.prose.gap(Gap::Space);
            self.prose.verbatim(&format!("({address})"));
        }
    }
}

/// A title, without breaks in it.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        line.push_str(if line.is_empty() { "" } else { " " });
        line.push_str(word);
    }
    line.chars().take(TITLE_CHARS_MAX).collect()
}

/// Whose content is no text for a reader.
fn is_hidden(name: &[u8]) -> bool {
    is_foreign(name)
        || matches!(
            name,
            b"script"
                | b"style"
                | b"noscript"
                | b"template"
                | b"iframe"
                | b"noembed"
                | b"noframes"
                | b"object"
                | b"canvas"
                | b"audio"
                | b"video"
                | b"select"
                | b"datalist"
        )
}

fn is_foreign(name: &[u8]) -> bool {
    matches!(name, b"svg" | b"math")
}

fn is_verbatim(name: &[u8]) -> bool {
    matches!(name, b"pre" | b"textarea" | b"listing" | b"xmp" | b"plaintext")
}

/// What stands before an element and after it.
fn gap_around(name: &[u8]) -> Gap {
    match name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"ul" | b"ol" | b"dl" | b"table"
        | b"blockquote" | b"pre" | b"hr" | b"listing" | b"xmp" | b"plaintext" => Gap::Blank,
        b"address" | b"article" | b"aside" | b"body" | b"br" | b"caption" | b"center" | b"dd"
        | b"details" | b"dialog" | b"dir" | b"div" | b"dt" | b"fieldset" | b"figcaption" | b"figure"
        | b"footer" | b"form" | b"head" | b"header" | b"hgroup" | b"html" | b"legend" | b"li" | b"main"
        | b"menu" | b"nav" | b"option" | b"search" | b"section" | b"summary" | b"tbody" | b"textarea"
        | b"tfoot" | b"thead" | b"tr" => Gap::Line,
        b"td" | b"th" => Gap::Cell,
        _ => Gap::None,
    }
}

#[cfg(test)]
mod tests;
