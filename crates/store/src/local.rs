//! Stores objects in a local directory. Files are written next to their destination, synced and renamed, so
//! that an object is complete or absent even after a power failure. Nothing outside the directory is touched.

mod paths;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream;
use rustix::fs::OFlags;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use self::paths::RootDirectory;
use crate::backend::{
    Backend, BackendFuture, ByteRange, Etag, Kind, ListedObject, ObjectBody, ObjectMetadata, Page, Part,
    PendingUpload, StoreLocation, UnfinishedUpload, UploadId, UploadToken,
};
use crate::error::{Class, Fault};
use crate::key::Key;
use crate::secret::InvalidConfig;

/// How many bytes are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// How many names a page of a listing has.
const PAGE_SIZE: usize = 1000;

/// A store in a local directory.
#[derive(Clone, Debug)]
pub struct Local {
    location: StoreLocation,
    root: Arc<RootDirectory>,
}

impl Local {
    /// Uses the directory at `path`, which must exist when the store is used.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, InvalidConfig> {
        let path = path.into();
        let is_valid = path.is_absolute()
            && !path
                .components()
                .any(|part| part == std::path::Component::ParentDir);
        if !is_valid {
            let problem = "must be absolute and without `..`; for example: /backups/etcd";
            return Err(InvalidConfig::new("local.path", problem));
        }
        Ok(Self {
            location: StoreLocation {
                kind: Kind::Local,
                bucket: path.display().to_string(),
                endpoint: String::new(),
            },
            root: Arc::new(RootDirectory::new(path)),
        })
    }

    /// Runs blocking file operations on a separate thread.
    fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RootDirectory) -> Result<T, Fault> + Send + 'static,
    ) -> BackendFuture<'_, T> {
        let root = Arc::clone(&self.root);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || work(&root)).await {
                Ok(result) => result,
                Err(stopped) => Err(Fault::new(Class::Transient, stopped.to_string())),
            }
        })
    }
}

impl Backend for Local {
    fn location(&self) -> &StoreLocation {
        &self.location
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a UploadToken) -> BackendFuture<'a, UploadId> {
        let (key, mark) = (key.clone(), mark.clone());
        self.run_blocking(move |root| upload::begin(root, &key, &mark))
    }

    fn upload_part<'a>(
        &'a self,
        target: &'a PendingUpload,
        number: u32,
        body: Bytes,
    ) -> BackendFuture<'a, Part> {
        let target = target.clone();
        self.run_blocking(move |root| upload::write_part(root, &target, number, &body))
    }

    fn complete<'a>(&'a self, target: &'a PendingUpload, parts: &'a [Part]) -> BackendFuture<'a, ()> {
        let target = target.clone();
        let size = parts.iter().map(|part| part.size).sum();
        self.run_blocking(move |root| upload::complete(root, &target, size))
    }

    fn abort<'a>(&'a self, target: &'a PendingUpload) -> BackendFuture<'a, ()> {
        let target = target.clone();
        self.run_blocking(move |root| upload::abort(root, &target))
    }

    fn head<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ObjectMetadata> {
        let key = key.clone();
        self.run_blocking(move |root| {
            let path = root.object_path(&key)?;
            paths::metadata_at(&path)
        })
    }

    fn read<'a>(
        &'a self,
        key: &'a Key,
        range: ByteRange,
        etag: Option<&'a Etag>,
    ) -> BackendFuture<'a, ObjectBody> {
        Box::pin(async move {
            let requested = key.clone();
            let path = self
                .run_blocking(move |root| root.object_path(&requested))
                .await?;
            open_file(&path, range, etag).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> BackendFuture<'a, Page<ListedObject>> {
        let (prefix, after) = (prefix.to_owned(), page.map(str::to_owned));
        self.run_blocking(move |root| {
            let mut entries = root.entries(&prefix)?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            if let Some(after) = after {
                entries.retain(|entry| entry.name > after);
            }
            let has_more = entries.len() > PAGE_SIZE;
            entries.truncate(PAGE_SIZE);
            let next = entries
                .last()
                .filter(|_| has_more)
                .map(|entry| entry.name.clone());
            Ok(Page { items: entries, next })
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ()> {
        let key = key.clone();
        self.run_blocking(move |root| {
            let path = root.object_path(&key)?;
            paths::metadata_at(&path)?;
            std::fs::remove_file(&path).map_err(|error| paths::io_fault(&error))?;
            paths::sync_parent(&path)
        })
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> BackendFuture<'a, ()> {
        let key = key.clone();
        self.run_blocking(move |root| upload::create(root, &key, &body))
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        _page: Option<&'a str>,
    ) -> BackendFuture<'a, Page<UnfinishedUpload>> {
        let prefix = prefix.to_owned();
        self.run_blocking(move |root| {
            let items = upload::list_unfinished(root, &prefix)?;
            Ok(Page { items, next: None })
        })
    }
}

async fn open_file(path: &Path, range: ByteRange, etag: Option<&Etag>) -> Result<ObjectBody, Fault> {
    let to_fault = |error: std::io::Error| paths::io_fault(&error);
    let mut file = tokio::fs::File::options()
        .read(true)
        // Without this flag, opening a named pipe would block until another process writes to it. Everything
        // but regular files is rejected below.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .await
        .map_err(to_fault)?;
    let meta = paths::object_metadata(&file.metadata().await.map_err(to_fault)?)?;
    if etag.is_some_and(|etag| *etag != meta.etag) {
        return Err(Fault::new(Class::Changed, "the file was replaced"));
    }
    let end = range.to.unwrap_or(meta.size).min(meta.size);
    if range.from > end || (range.from == end && meta.size > 0) {
        let detail = format!("the range starts at byte {} of {}", range.from, meta.size);
        return Err(Fault::new(Class::Unsupported, detail));
    }
    file.seek(std::io::SeekFrom::Start(range.from))
        .await
        .map_err(to_fault)?;
    let length = end - range.from;
    let body = stream::try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let wanted = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let mut buffer = BytesMut::with_capacity(wanted);
        let mut limited = (&mut file).take(u64::try_from(wanted).unwrap_or(left));
        let got = limited
            .read_buf(&mut buffer)
            .await
            .map_err(|error| paths::io_fault(&error))?;
        if got == 0 {
            return Err(Fault::new(
                Class::Corrupt,
                "the file was truncated while it was read",
            ));
        }
        let left = left - u64::try_from(got).unwrap_or(left);
        Ok(Some((buffer.freeze(), (file, left))))
    });
    Ok(ObjectBody {
        etag: meta.etag,
        length,
        body: Box::pin(body),
    })
}
