//! What a command writes.
//!
//! Invariant: both pipes are read to their ends, so that no command waits for us; what is kept of either is
//! bounded.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdout};

use crate::kept::{Kept, NotUtf8, READ_BYTES_MAX, Utf8};

/// How much is read at once: what a pipe holds.
const PIECE_BYTES: usize = 64 * 1024;
/// How much of the end of the error output the model is shown, in characters.
const LAST_WORDS_CHARS: usize = 2_000;
/// How much of the end of the error output is kept, in bytes: the longest characters have four.
const LAST_BYTES: usize = LAST_WORDS_CHARS * 4;

/// Both outputs of a command.
pub(super) struct Output {
    stdout: Pipe<ChildStdout, Text>,
    stderr: Pipe<ChildStderr, Tail>,
}

impl Output {
    pub(super) fn new(stdout: ChildStdout, stderr: ChildStderr) -> Self {
        Self { stdout: Pipe::new(stdout), stderr: Pipe::new(stderr) }
    }

    /// Reads for as long as there is something to read, or may be. Returns only when it was too much. Nothing
    /// is lost when it is dropped.
    pub(super) async fn read(&mut self) {
        tokio::select! {
            () = self.stdout.read() => {}
            () = self.stderr.read() => {}
        }
    }

    /// Reads what is there, without waiting for more.
    pub(super) fn drain(&mut self) {
        self.stdout.drain();
        self.stderr.drain();
    }

    /// The standard output.
    pub(super) fn into_content(self) -> Result<String, NotUtf8> {
        let Text { utf8, kept } = self.stdout.sink;
        utf8?.end()?;
        Ok(kept.into_content())
    }

    /// The end of the error output, to be added to a sentence. Control characters are shown and not sent on.
    pub(super) fn last_words(&self) -> String {
        let Tail { bytes, all } = &self.stderr.sink;
        let text: Vec<u8> = bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&text);
        let text = text.trim_end();
        let start = text.char_indices().rev().nth(LAST_WORDS_CHARS - 1).map_or(0, |(start, _)| start);
        let words = &text[start..];
        if words.is_empty() {
            return String::new();
        }
        let is_cut = start > 0 || *all > bytes.len() as u64;
        let which = if is_cut { "The end of its" } else { "Its" };
        let mut shown = format!("\n{which} error output:\n");
        for character in words.chars() {
            if character.is_control() && !matches!(character, '\n' | '\t') {
                shown.extend(character.escape_unicode());
            } else {
                shown.push(character);
            }
        }
        shown
    }
}

/// Takes pieces.
trait Sink: Default {
    fn push(&mut self, bytes: &[u8]);
}

/// A text from its beginning.
struct Text {
    utf8: Result<Utf8, NotUtf8>,
    kept: Kept,
}

impl Default for Text {
    fn default() -> Self {
        Self { utf8: Ok(Utf8::default()), kept: Kept::default() }
    }
}

impl Sink for Text {
    fn push(&mut self, bytes: &[u8]) {
        let Ok(utf8) = &mut self.utf8 else { return };
        match utf8.read(bytes) {
            Ok(piece) => self.kept.push(&piece),
            Err(error) => self.utf8 = Err(error),
        }
    }
}

/// The end of a text.
#[derive(Default)]
struct Tail {
    bytes: VecDeque<u8>,
    all: u64,
}

impl Sink for Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.all += bytes.len() as u64;
        self.bytes.extend(&bytes[bytes.len().saturating_sub(LAST_BYTES)..]);
        self.bytes.drain(..self.bytes.len().saturating_sub(LAST_BYTES));
    }
}

/// One pipe, and what was kept of it.
struct Pipe<P, S> {
    pipe: P,
    piece: Vec<u8>,
    read: u64,
    sink: S,
}

impl<P: AsyncRead + AsFd + Unpin, S: Sink> Pipe<P, S> {
    fn new(pipe: P) -> Self {
        Self { pipe, piece: vec![0; PIECE_BYTES], read: 0, sink: S::default() }
    }

    /// Returns only when it was too much.
    async fn read(&mut self) {
        loop {
            let Ok(length @ 1..) = self.pipe.read(&mut self.piece).await else {
                // At its end. The command may still be at work.
                return std::future::pending().await;
            };
            if self.is_too_much(length) {
                return;
            }
        }
    }

    fn drain(&mut self) {
        loop {
            // Tokio has made the pipe non-blocking. Its own readiness may lag behind what the pipe holds.
            match rustix::io::read(&self.pipe, &mut self.piece).map_err(io::Error::from) {
                Ok(0) => return,
                Ok(length) if self.is_too_much(length) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn is_too_much(&mut self, length: usize) -> bool {
        self.read += length as u64;
        self.sink.push(&self.piece[..length]);
        self.read > READ_BYTES_MAX
    }
}
