//! The pump between etcd and a store: a stream on one side, parts on the other, a bounded number of buffers between them.
//! Each side waits for the other; if any fails, all stop, and the upload is the caller's to abort.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use etcd_operator_store::Upload;
use etcd_operator_store::backend::Part;
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::budget::Budget;
use crate::failure::Failure;
use crate::members::Pieces;
use crate::shape::{Fed, Filled, Shaped, Wanted, shape};

/// How many pieces of etcd's may wait: a megabyte of its usual ones.
const WAITING: usize = 32;

/// How far a run is, for whoever watches it.
#[derive(Debug, Default)]
pub struct Flow {
    /// Bytes that came from etcd.
    pub received: AtomicU64,
    /// Bytes that the store has.
    pub stored: AtomicU64,
    /// Whether etcd is no longer held up.
    pub has_ended: AtomicBool,
}

/// Everything that was handed over.
#[derive(Clone, Debug)]
pub struct Pumped {
    /// What it is.
    pub shaped: Shaped,
    /// The parts the store has.
    pub parts: Vec<Part>,
}

/// Moves a snapshot into an upload, until it is done or `halt` says why not.
pub async fn pump(
    pieces: Pieces,
    upload: &Arc<Upload>,
    wanted: Arc<Wanted>,
    budget: &Budget,
    flow: &Flow,
    halt: impl Future<Output = Failure>,
) -> Result<Pumped, Failure> {
    let mut flights = JoinSet::new();
    let result = tokio::select! {
        result = transfer(pieces, upload, wanted, budget, flow, &mut flights) => result,
        why = halt => Err(why),
    };
    flights.shutdown().await;
    result
}

async fn transfer(
    mut pieces: Pieces,
    upload: &Arc<Upload>,
    wanted: Arc<Wanted>,
    budget: &Budget,
    flow: &Flow,
    flights: &mut JoinSet<Result<Part, Failure>>,
) -> Result<Pumped, Failure> {
    let (feed, fed) = mpsc::channel(WAITING);
    let (fill, mut filled) = mpsc::channel::<Filled>(1);
    let part_size = usize::try_from(upload.part_size()).map_err(|_| Failure::order("parts are too large"))?;
    let shaper = {
        let (budget, runtime) = (budget.clone(), tokio::runtime::Handle::current());
        tokio::task::spawn_blocking(move || shape(fed, fill, &wanted, budget, part_size, runtime))
    };
    let receive = async {
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            flow.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if feed.send(Fed::Bytes(piece)).await.is_err() {
                // The shaper tells why it no longer takes any.
                return Ok(());
            }
        }
        flow.has_ended.store(true, Ordering::Relaxed);
        let _ = feed.send(Fed::End).await;
        drop(feed);
        Ok::<(), Failure>(())
    };
    let send = async {
        let mut parts = Vec::new();
        loop {
            tokio::select! {
                Some(filled) = filled.recv() => {
                    let upload = Arc::clone(upload);
                    flights.spawn(async move {
                        let Filled { number, bytes, seat } = filled;
                        let part = upload.upload_part(number, bytes).await?;
                        drop(seat);
                        Ok(part)
                    });
                }
                Some(landed) = flights.join_next() => {
                    let part = landed.map_err(|stopped| Failure::passing("Stopped", stopped.to_string()))??;
                    flow.stored.fetch_add(part.size, Ordering::Relaxed);
                    parts.push(part);
                }
                else => return Ok::<Vec<Part>, Failure>(parts),
            }
        }
    };
    let ((), parts) = tokio::try_join!(receive, send)?;
    let shaped = shaper
        .await
        .map_err(|stopped| Failure::passing("Stopped", stopped.to_string()))??
        .ok_or_else(|| Failure::passing("StreamBroken", "the stream ended before its end"))?;
    let handed: u64 = parts.iter().map(|part| part.size).sum();
    if handed != shaped.size {
        let message = format!("the store says it has {handed} of {} bytes", shaped.size);
        return Err(Failure::passing("VerificationFailed", message));
    }
    Ok(Pumped { shaped, parts })
}
