//! A directory as a store: written beside, synced and renamed, so that an object is whole or not there, also after the
//! power failed. Nothing outside the directory is ever touched.

mod paths;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream;
use rustix::fs::OFlags;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use self::paths::Root;
use crate::error::{Class, Fault};
use crate::key::Key;
use crate::port::{
    Answer, Begun, Entry, Etag, Kind, Mark, Meta, Page, Part, Place, Port, Reading, Span, Target, UploadId,
};
use crate::secret::BadConfig;

/// How much is read at once.
const PIECE: usize = 1 << 20;

/// How many names are on a page.
const PAGE: usize = 1000;

/// A directory on a volume.
#[derive(Clone, Debug)]
pub struct Local {
    place: Place,
    root: Arc<Root>,
}

impl Local {
    /// The directory at `path`, which must exist when it is used.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, BadConfig> {
        let path = path.into();
        let is_plain = path.is_absolute()
            && !path
                .components()
                .any(|part| part == std::path::Component::ParentDir);
        if !is_plain {
            let problem = "must be absolute and without `..`; for example: /backups/etcd";
            return Err(BadConfig::new("local.path", problem));
        }
        Ok(Self {
            place: Place {
                kind: Kind::Local,
                bucket: path.display().to_string(),
                endpoint: String::new(),
            },
            root: Arc::new(Root::new(path)),
        })
    }

    /// Runs what blocks beside the asynchronous tasks.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'_, T> {
        let root = Arc::clone(&self.root);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || work(&root)).await {
                Ok(result) => result,
                Err(stopped) => Err(Fault::new(Class::Transient, stopped.to_string())),
            }
        })
    }
}

impl Port for Local {
    fn place(&self) -> &Place {
        &self.place
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a Mark) -> Answer<'a, UploadId> {
        let (key, mark) = (key.clone(), mark.clone());
        self.blocking(move |root| upload::begin(root, &key, &mark))
    }

    fn part<'a>(&'a self, target: &'a Target, number: u32, body: Bytes) -> Answer<'a, Part> {
        let target = target.clone();
        self.blocking(move |root| upload::part(root, &target, number, &body))
    }

    fn complete<'a>(&'a self, target: &'a Target, parts: &'a [Part]) -> Answer<'a, ()> {
        let target = target.clone();
        let size = parts.iter().map(|part| part.size).sum();
        self.blocking(move |root| upload::complete(root, &target, size))
    }

    fn abort<'a>(&'a self, target: &'a Target) -> Answer<'a, ()> {
        let target = target.clone();
        self.blocking(move |root| upload::abort(root, &target))
    }

    fn head<'a>(&'a self, key: &'a Key) -> Answer<'a, Meta> {
        let key = key.clone();
        self.blocking(move |root| {
            let path = root.object(&key)?;
            paths::meta(&path)
        })
    }

    fn read<'a>(&'a self, key: &'a Key, span: Span, etag: Option<&'a Etag>) -> Answer<'a, Reading> {
        Box::pin(async move {
            let wanted = key.clone();
            let path = self.blocking(move |root| root.object(&wanted)).await?;
            read(&path, span, etag).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Entry>> {
        let (prefix, after) = (prefix.to_owned(), page.map(str::to_owned));
        self.blocking(move |root| {
            let mut entries = root.entries(&prefix)?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            if let Some(after) = after {
                entries.retain(|entry| entry.name > after);
            }
            let is_more = entries.len() > PAGE;
            entries.truncate(PAGE);
            let next = entries.last().filter(|_| is_more).map(|entry| entry.name.clone());
            Ok(Page { items: entries, next })
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        let key = key.clone();
        self.blocking(move |root| {
            let path = root.object(&key)?;
            paths::meta(&path)?;
            std::fs::remove_file(&path).map_err(|error| paths::fault(&error))?;
            paths::sync_parent(&path)
        })
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> Answer<'a, ()> {
        let key = key.clone();
        self.blocking(move |root| upload::create(root, &key, &body))
    }

    fn begun<'a>(&'a self, prefix: &'a str, _page: Option<&'a str>) -> Answer<'a, Page<Begun>> {
        let prefix = prefix.to_owned();
        self.blocking(move |root| {
            let items = upload::begun(root, &prefix)?;
            Ok(Page { items, next: None })
        })
    }
}

async fn read(path: &Path, span: Span, etag: Option<&Etag>) -> Result<Reading, Fault> {
    let of = |error: std::io::Error| paths::fault(&error);
    let mut file = tokio::fs::File::options()
        .read(true)
        // A pipe would be waited for until somebody writes into it; what is no file is told below.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .await
        .map_err(of)?;
    let meta = paths::of_metadata(&file.metadata().await.map_err(of)?)?;
    if etag.is_some_and(|etag| *etag != meta.etag) {
        return Err(Fault::new(Class::Changed, "the file is another one"));
    }
    let end = span.to.unwrap_or(meta.size).min(meta.size);
    if span.from > end || (span.from == end && meta.size > 0) {
        let said = format!("byte {} of {}", span.from, meta.size);
        return Err(Fault::new(Class::Unsupported, said));
    }
    file.seek(std::io::SeekFrom::Start(span.from)).await.map_err(of)?;
    let length = end - span.from;
    let body = stream::try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let want = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let mut buffer = BytesMut::with_capacity(want);
        let mut limited = (&mut file).take(u64::try_from(want).unwrap_or(left));
        let got = limited
            .read_buf(&mut buffer)
            .await
            .map_err(|error| paths::fault(&error))?;
        if got == 0 {
            return Err(Fault::new(
                Class::Corrupt,
                "the file became shorter while it was read",
            ));
        }
        let left = left - u64::try_from(got).unwrap_or(left);
        Ok(Some((buffer.freeze(), (file, left))))
    });
    Ok(Reading {
        etag: meta.etag,
        length,
        body: Box::pin(body),
    })
}
