//! Pages that are found by key: a row's number is its place, and the cursor.

use countersign::Page;

/// Cuts a page off what was found, which is one more than its limit if there is a next one. A row that could not
/// be read has its place and no line.
pub(crate) fn page<T, U>(mut found: Vec<(i64, Option<T>)>, limit: usize, line: impl Fn(T) -> U) -> Page<U> {
    let more = found.len() > limit.max(1);
    found.truncate(limit.max(1));
    let next = found.last().filter(|_| more).map(|(number, _)| number.to_string());
    Page { items: found.into_iter().filter_map(|(_, row)| row.map(&line)).collect(), next }
}

/// How many rows are looked for.
pub(crate) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit.max(1)).unwrap_or(i64::MAX).saturating_add(1)
}

/// The place that a cursor stands for, if it was ever given out.
pub(crate) fn position(cursor: &str) -> Option<i64> {
    cursor.parse().ok()
}

/// What follows a cursor that was never given out.
pub(crate) fn nothing<T>() -> Page<T> {
    Page { items: Vec::new(), next: None }
}
