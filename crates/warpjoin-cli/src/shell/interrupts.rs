//! Ctrl-C, heard even while all threads of the runtime are busy.
//!
//! Must not know what is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::error::{CliError, INTERRUPTED, Result};

/// Hears Ctrl-C. If it is pressed again before the first press is taken, the process ends.
pub(super) struct Interrupts {
    pressed: watch::Receiver<()>,
    /// Whether a press is not yet taken.
    is_pending: Arc<AtomicBool>,
}

impl Interrupts {
    /// Begins to listen, on a thread of its own: operators of DataFusion may keep every thread of the runtime busy.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(super) fn listen() -> Result<Self> {
        let failed = |error| CliError::Internal(format!("Ctrl-C cannot be heard: {error}"));
        let (sender, pressed) = watch::channel(());
        let is_pending = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let pending = Arc::clone(&is_pending);
        let listen = move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if pending.swap(true, Ordering::AcqRel) {
                        std::process::exit(INTERRUPTED.into());
                    }
                    sender.send_replace(());
                }
            });
        };
        std::thread::Builder::new().name("interrupts".into()).spawn(listen).map_err(failed)?;
        Ok(Self { pressed, is_pending })
    }

    /// Forgets a press that is not yet taken.
    pub(super) fn forget(&mut self) {
        self.pressed.mark_unchanged();
        self.is_pending.store(false, Ordering::Release);
    }

    /// Waits until Ctrl-C is pressed, or takes a press that was not yet taken.
    pub(super) async fn next(&mut self) {
        if self.pressed.changed().await.is_err() {
            // The listener has failed: nothing will ever be heard.
            std::future::pending::<()>().await;
        }
        self.is_pending.store(false, Ordering::Release);
    }
}
