//! The stream of a snapshot: one member's database as it is at one moment, piece by piece, then its hash. It cannot be
//! taken up again where it broke, as the next one is of another moment. What is not taken here waits at the member.

use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::Streaming;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use super::{Call, Client, cause, whole};
use crate::error::{Cause, Error};
use crate::wire::{Empty, SnapshotResponse};

const SNAPSHOT: Call = Call::cluster("/etcdserverpb.Maintenance/Snapshot");

/// A snapshot on its way.
#[derive(Debug)]
pub struct Snapshot {
    pieces: Streaming<SnapshotResponse>,
    client: Client,
    idle: Duration,
}

/// Some of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes.
    pub bytes: Bytes,
    /// How many bytes of the database are still to come; the hash behind them is not counted.
    pub remaining: u64,
}

impl Client {
    /// Begins a snapshot of this member's database. Learners give one, too. No piece may take longer than `idle`.
    pub async fn snapshot(&self, idle: Duration) -> Result<Snapshot, Error> {
        let mut grpc = Grpc::new(self.channel.clone());
        let asked = async {
            grpc.ready()
                .await
                .map_err(|error| Cause::Unreachable(whole(&error)))?;
            let path = PathAndQuery::from_static(SNAPSHOT.path);
            grpc.server_streaming(
                self.request(Empty {}),
                path,
                ProstCodec::<Empty, SnapshotResponse>::default(),
            )
            .await
            .map_err(|answer| cause(&answer))
        };
        match tokio::time::timeout(self.limits.call.max(idle), asked).await {
            Ok(Ok(answer)) => Ok(Snapshot {
                pieces: answer.into_inner(),
                client: self.clone(),
                idle,
            }),
            Ok(Err(cause)) => Err(self.failed(SNAPSHOT, cause)),
            Err(_) => Err(self.failed(SNAPSHOT, Cause::NoAnswer(idle))),
        }
    }
}

impl Snapshot {
    /// The next piece; nothing at the end. That nothing is left to come is no end: the hash comes after it.
    pub async fn next(&mut self) -> Result<Option<Piece>, Error> {
        let failed = |cause| self.client.failed(SNAPSHOT, cause);
        match tokio::time::timeout(self.idle, self.pieces.message()).await {
            Ok(Ok(None)) => Ok(None),
            Ok(Ok(Some(piece))) => Ok(Some(Piece {
                bytes: piece.blob,
                remaining: piece.remaining_bytes,
            })),
            Ok(Err(answer)) => Err(failed(cause(&answer))),
            Err(_) => Err(failed(Cause::NoAnswer(self.idle))),
        }
    }
}
