//! A member that answers every call of gRPC with its status.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The version that it runs.
pub const VERSION: &str = "3.6.16";
/// What a client of HTTP/2 sends first.
const PREFACE: usize = 24;
/// Frames of HTTP/2: length, kind, flags and stream, then the payload.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Answers until the client hangs up.
pub async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let _ = exchange(&mut stream).await;
}

async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<()> {
    stream.write_all(&SETTINGS).await?;
    stream.read_exact(&mut [0; PREFACE]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("it fits")];
        stream.read_exact(&mut payload).await?;
        if head[3] == HEADERS {
            let id = [head[5], head[6], head[7], head[8]];
            let mut answer = frame(HEADERS, END_HEADERS, id, &header());
            answer.extend(frame(DATA, 0, id, &status()));
            answer.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, &trailer()));
            stream.write_all(&answer).await?;
        }
    }
}

fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("it is short");
    let head = [0, 0, length, kind, flags];
    [&head[..], &stream, payload].concat()
}

/// A text with its length before it.
fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("it is short");
    [&[length], text.as_bytes()].concat()
}

/// `:status` 200 by its number in the table of HPACK, and the content type of gRPC as a literal of a name in that table.
fn header() -> Vec<u8> {
    [vec![0x88, 0x0f, 0x10], text("application/grpc")].concat()
}

fn trailer() -> Vec<u8> {
    [vec![0], text("grpc-status"), text("0")].concat()
}

/// A message of gRPC with a `StatusResponse`: member 2 of cluster 1, and its version.
fn status() -> Vec<u8> {
    let message = [vec![0x0a, 4, 0x08, 1, 0x10, 2, 0x12], text(VERSION)].concat();
    let length = u8::try_from(message.len()).expect("it is short");
    [vec![0, 0, 0, 0, length], message].concat()
}
