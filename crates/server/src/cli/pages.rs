//! Lists that a command prints whole.

use countersign::{Page, StoreFault};

/// At most this many are read at once.
pub(super) const PAGE: usize = 100;

/// Reads all pages of a list, one after another.
///
/// # Errors
/// [`StoreFault`], from the first page that cannot be read.
pub(super) async fn all_of<T>(
    mut page: impl AsyncFnMut(Option<String>) -> Result<Page<T>, StoreFault>,
) -> Result<Vec<T>, StoreFault> {
    let (mut items, mut cursor) = (Vec::new(), None);
    loop {
        let read = page(cursor).await?;
        items.extend(read.items);
        cursor = read.next;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}
