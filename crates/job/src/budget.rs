//! Limits the memory of a backup run to a number of buffers, each of the size of one part.
//!
//! Taking a further buffer waits until one is free. A slow store thus slows down the stream from etcd instead of filling
//! the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of buffers of a run: one is being filled while two are being uploaded.
pub const BUFFERS: usize = 3;

/// A limited number of buffers; cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget {
    free: Arc<Semaphore>,
    usage: Arc<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    held: AtomicUsize,
    max_held: AtomicUsize,
}

/// The permission to hold one buffer. Dropping it frees the buffer.
#[derive(Debug)]
pub struct BufferPermit {
    usage: Arc<Usage>,
    _permit: OwnedSemaphorePermit,
}

impl Budget {
    /// A budget of this number of buffers, each of the size of one part. Clones share it.
    pub fn new(buffers: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(buffers)),
            usage: Arc::default(),
        }
    }

    /// Waits for a free buffer.
    pub async fn acquire(&self) -> BufferPermit {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let held = self.usage.held.fetch_add(1, Ordering::Relaxed) + 1;
        self.usage.max_held.fetch_max(held, Ordering::Relaxed);
        BufferPermit {
            usage: Arc::clone(&self.usage),
            _permit: permit.expect("the semaphore is never closed"),
        }
    }

    /// The largest number of buffers that were held at once.
    pub fn max_held(&self) -> usize {
        self.usage.max_held.load(Ordering::Relaxed)
    }
}

impl Drop for BufferPermit {
    fn drop(&mut self) {
        self.usage.held.fetch_sub(1, Ordering::Relaxed);
    }
}
