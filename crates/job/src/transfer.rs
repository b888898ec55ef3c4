//! Transfers a snapshot from etcd to a store: a stream on one side, parts on the other, and a bounded number of buffers
//! between them.
//!
//! Each side waits for the other. If one fails, all stop, and the caller aborts the upload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use etcd_operator_store::Upload;
use etcd_operator_store::backend::Part;
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::budget::Budget;
use crate::encoder::{EncodedObject, Encoding, FilledPart, Input, encode};
use crate::failure::Failure;
use crate::members::SnapshotStream;

/// How many pieces of the stream may wait for the encoder: a megabyte of etcd's usual pieces.
const QUEUED_PIECES: usize = 32;

/// The progress of a transfer, for those that watch it.
#[derive(Debug, Default)]
pub struct TransferProgress {
    /// The bytes received from etcd.
    pub received: AtomicU64,
    /// The bytes that the store has confirmed.
    pub stored: AtomicU64,
    /// Whether etcd has sent everything.
    pub has_stream_ended: AtomicBool,
}

/// A completed transfer. The upload is not completed yet.
#[derive(Clone, Debug)]
pub struct TransferResult {
    /// What was uploaded.
    pub encoded: EncodedObject,
    /// The parts that the store has.
    pub parts: Vec<Part>,
}

/// Transfers a snapshot into an upload, until it is complete or `abort` returns why it must stop. When it returns, no
/// part is being uploaded any more.
pub async fn transfer(
    snapshot: SnapshotStream,
    upload: &Arc<Upload>,
    encoding: Arc<Encoding>,
    budget: &Budget,
    progress: &TransferProgress,
    abort: impl Future<Output = Failure>,
) -> Result<TransferResult, Failure> {
    let mut requests = JoinSet::new();
    let result = tokio::select! {
        result = receive_and_upload(snapshot, upload, encoding, budget, progress, &mut requests) => result,
        why = abort => Err(why),
    };
    requests.shutdown().await;
    result
}

async fn receive_and_upload(
    mut snapshot: SnapshotStream,
    upload: &Arc<Upload>,
    encoding: Arc<Encoding>,
    budget: &Budget,
    progress: &TransferProgress,
    requests: &mut JoinSet<Result<Part, Failure>>,
) -> Result<TransferResult, Failure> {
    let (input, encoder_input) = mpsc::channel(QUEUED_PIECES);
    let (encoder_output, mut filled_parts) = mpsc::channel::<FilledPart>(1);
    let part_size =
        usize::try_from(upload.part_size()).map_err(|_| Failure::bad_order("parts are too large"))?;
    let encoder = {
        let (budget, runtime) = (budget.clone(), tokio::runtime::Handle::current());
        tokio::task::spawn_blocking(move || {
            encode(
                encoder_input,
                encoder_output,
                &encoding,
                budget,
                part_size,
                runtime,
            )
        })
    };
    let receive = async {
        while let Some(piece) = snapshot.next().await {
            let piece = piece?;
            progress.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if input.send(Input::Bytes(piece)).await.is_err() {
                // The encoder has stopped; its own result says why.
                return Ok(());
            }
        }
        progress.has_stream_ended.store(true, Ordering::Relaxed);
        let _ = input.send(Input::End).await;
        drop(input);
        Ok::<(), Failure>(())
    };
    let send = async {
        let mut parts = Vec::new();
        loop {
            tokio::select! {
                Some(filled) = filled_parts.recv() => {
                    let upload = Arc::clone(upload);
                    requests.spawn(async move {
                        let FilledPart { number, bytes, permit } = filled;
                        let part = upload.upload_part(number, bytes).await?;
                        drop(permit);
                        Ok(part)
                    });
                }
                Some(finished) = requests.join_next() => {
                    let part = finished.map_err(|stopped| Failure::retriable("Stopped", stopped.to_string()))??;
                    progress.stored.fetch_add(part.size, Ordering::Relaxed);
                    parts.push(part);
                }
                else => return Ok::<Vec<Part>, Failure>(parts),
            }
        }
    };
    let ((), parts) = tokio::try_join!(receive, send)?;
    let encoded = encoder
        .await
        .map_err(|stopped| Failure::retriable("Stopped", stopped.to_string()))??
        .ok_or_else(|| {
            Failure::retriable(
                "StreamBroken",
                "the stream ended before the snapshot was complete",
            )
        })?;
    let uploaded: u64 = parts.iter().map(|part| part.size).sum();
    if uploaded != encoded.size {
        let message = format!("the store reports {uploaded} of {} bytes", encoded.size);
        return Err(Failure::retriable("VerificationFailed", message));
    }
    Ok(TransferResult { encoded, parts })
}
