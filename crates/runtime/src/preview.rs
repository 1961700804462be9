//! What a held call would do, made at pause time under the run owner's rights (A7).
//!
//! Invariant: a preview that fails is visible as a failure, and holds nothing up.

use std::sync::Arc;

use countersign_core::{HeldCall, Preview, Run};

use crate::runtime::Parts;
use crate::tool::PreviewContext;

/// `None`: the tool has no preview, or the call no arguments.
pub(crate) async fn preview(parts: &Parts, run: &Run, call: &HeldCall) -> Option<Preview> {
    let registered = parts.tools.tool(&call.tool)?;
    let (tool, arguments) = (Arc::clone(&registered.tool), call.arguments.clone()?);
    let cx = PreviewContext::new(run.created().owner.clone(), run.id().clone(), call.id.clone());
    let made = tokio::spawn(async move { tool.preview(&arguments, &cx).await });
    let abort = made.abort_handle();
    let made = tokio::select! {
        made = made => made,
        () = parts.clock.sleep(registered.tool.timeout()) => {
            abort.abort();
            return Some(Preview::failure("The preview took too long."));
        }
    };
    match made {
        Ok(None) => None,
        Ok(Some(Ok(preview))) => Some(Preview::of(preview.lines, preview.precondition)),
        Ok(Some(Err(error))) => Some(Preview::failure(&format!("The preview failed: {error}"))),
        Err(_) => Some(Preview::failure("The preview failed inside the tool.")),
    }
}
