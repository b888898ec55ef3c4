//! Writes log messages from a thread of its own. Logging never blocks: if the writer stalls, messages are dropped and
//! counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Most messages that wait to be written.
const MAX_WAITING: usize = 4096;

/// How long the end of the process waits until the messages are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

enum Item {
    Message(Vec<u8>),
    /// All earlier messages are to be written; the receiver is told when they are.
    Flush(SyncSender<()>),
}

/// Queues messages for the thread that writes them; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct BackgroundWriter {
    items: SyncSender<Item>,
    dropped: Arc<AtomicUsize>,
}

/// Waits on drop until the messages logged so far are written, but at most [`FLUSH_TIMEOUT`].
#[derive(Debug)]
#[must_use = "dropping it flushes the log"]
pub struct Flush {
    items: SyncSender<Item>,
}

impl BackgroundWriter {
    /// Starts the thread that writes to `output`.
    pub(super) fn start(output: impl Write + Send + 'static) -> io::Result<(Self, Flush)> {
        let (items, receiver) = mpsc::sync_channel(MAX_WAITING);
        let dropped = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("logs".to_owned())
            .spawn(move || write_all(&receiver, &count, output))?;
        let flush = Flush { items: items.clone() };
        Ok((Self { items, dropped }, flush))
    }
}

/// Writes every message until all senders are gone. Errors are ignored: there is no other place to report them.
fn write_all(items: &Receiver<Item>, dropped: &AtomicUsize, mut output: impl Write) {
    for item in items {
        match item {
            Item::Message(message) => {
                let _ = output.write_all(&message);
            }
            Item::Flush(done) => {
                let _ = output.flush();
                let _ = done.try_send(());
            }
        }
        let count = dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(
                output,
                "{count} log messages were dropped: standard error was blocked"
            );
        }
    }
}

impl<'a> MakeWriter<'a> for BackgroundWriter {
    type Writer = Message<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Message {
            writer: self,
            bytes: Vec::new(),
        }
    }
}

/// One message. It is queued as a whole when it is dropped.
#[derive(Debug)]
pub(super) struct Message<'a> {
    writer: &'a BackgroundWriter,
    bytes: Vec<u8>,
}

impl Write for Message<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        let message = Item::Message(std::mem::take(&mut self.bytes));
        if self.writer.items.try_send(message).is_err() {
            self.writer.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, is_done) = mpsc::sync_channel(1);
        // If the queue is full, standard error is blocked and nothing can be flushed.
        if self.items.try_send(Item::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Blocks every write until the test sends a permit or drops the sender.
    struct Stalled {
        permits: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.permits.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_output_blocks_no_logging_and_dropped_messages_are_counted() {
        let (release, permits) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let output = Stalled {
            permits,
            written: Arc::clone(&written),
        };
        let (writer, flush) = BackgroundWriter::start(output).unwrap();
        // One message may already be with the thread, which waits for the output.
        let sent = MAX_WAITING + 100;
        for number in 0..sent {
            writeln!(writer.make_writer(), "message {number}").unwrap();
        }
        assert!(written.lock().unwrap().is_empty());
        let dropped = writer.dropped.load(Ordering::Relaxed);
        assert!((99..=100).contains(&dropped), "{dropped}");

        drop(release);
        // The queue may still be full for a moment.
        let (done, is_done) = mpsc::sync_channel(1);
        writer.items.send(Item::Flush(done)).unwrap();
        is_done.recv().unwrap();
        drop(flush);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.first(), Some(&"message 0"));
        assert_eq!(lines.len(), sent - dropped + 1);
        let report = format!("{dropped} log messages were dropped: standard error was blocked");
        assert!(lines.contains(&report.as_str()), "{report}");
    }
}
