//! Statements that are sent together.
//!
//! Invariant: of several that fail, the first in the order in which they were sent says why. After it PostgreSQL
//! refuses all others of the transaction, in words that say nothing, and those may be heard first.

use futures_util::future::{join, join3, join4};

/// Two of them.
pub(super) async fn two<A, B, E>(
    first: impl Future<Output = Result<A, E>>,
    second: impl Future<Output = Result<B, E>>,
) -> Result<(A, B), E> {
    let (first, second) = join(first, second).await;
    Ok((first?, second?))
}

/// Three of them.
pub(super) async fn three<A, B, C, E>(
    first: impl Future<Output = Result<A, E>>,
    second: impl Future<Output = Result<B, E>>,
    third: impl Future<Output = Result<C, E>>,
) -> Result<(A, B, C), E> {
    let (first, second, third) = join3(first, second, third).await;
    Ok((first?, second?, third?))
}

/// Four of them.
pub(super) async fn four<A, B, C, D, E>(
    first: impl Future<Output = Result<A, E>>,
    second: impl Future<Output = Result<B, E>>,
    third: impl Future<Output = Result<C, E>>,
    fourth: impl Future<Output = Result<D, E>>,
) -> Result<(A, B, C, D), E> {
    let (first, second, third, fourth) = join4(first, second, third, fourth).await;
    Ok((first?, second?, third?, fourth?))
}
