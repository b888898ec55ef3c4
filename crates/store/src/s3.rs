//! S3 and everything that speaks its protocol, by Amazon's own client. Its retries are off: [`crate::Store`] has them.

mod connect;
mod port;
mod profile;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart, ServerSideEncryption, StorageClass};
use bytes::Bytes;
use futures::stream;
use jiff::Timestamp;

pub use self::connect::{Encryption, S3Config};
use crate::codes::{Refusal, is_page, retry_after};
use crate::digest::content_md5;
use crate::error::{Class, Fault};
use crate::key::Key;
use crate::net;
use crate::port::{Begun, Entry, Etag, Mark, Meta, Page, Part, Place, Reading, Span, Target, UploadId};
use crate::secret::Censor;

/// The name of the mark in an object's metadata.
pub(crate) const MARK: &str = "etcd-operator-upload";

/// Separates the two halves of a page's name; no key holds it.
const BETWEEN: char = '\n';

/// A bucket of S3.
#[derive(Clone, Debug)]
pub struct S3 {
    client: Client,
    place: Place,
    encryption: Option<ServerSideEncryption>,
    class: Option<StorageClass>,
    /// Amazon's own keep the condition of a write; of others not all do, and some do not say so.
    keeps_conditions: bool,
    censor: Censor,
}

impl S3 {
    fn fault<E>(&self, error: &SdkError<E, HttpResponse>) -> Fault
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let Some(response) = error.raw_response() else {
            return self.unanswered(error);
        };
        let header = |name| response.headers().get(name).map(str::to_owned);
        let status = response.status().as_u16();
        let code = error.code().map(str::to_owned);
        let code = code.or_else(|| header("x-amz-error-code")).unwrap_or_default();
        let kind = header("content-type");
        let body = response.body().bytes().unwrap_or_default();
        if code.is_empty() && is_page(status, kind.as_deref(), body) {
            let kind = kind.as_deref().unwrap_or("no kind of content told");
            let said = format!("HTTP {status} with {kind}, where S3 says what is wrong in XML");
            return Fault::new(Class::NotAStore, self.censor.clean(&said));
        }
        if response.status().is_success() && code.is_empty() {
            // The answer began well and could not be read to its end.
            return net::fault(error, &self.censor);
        }
        // Answers without a body tell it by their header alone.
        let region = header("x-amz-bucket-region");
        let is_elsewhere =
            matches!(status, 301 | 307) || (status == 400 && code.is_empty() && region.is_some());
        let refusal = Refusal {
            status,
            code,
            message: error.message().unwrap_or_default().to_owned(),
            region: region.filter(|_| is_elsewhere),
            retry_after: retry_after(header("retry-after").as_deref()),
        };
        let mut fault = refusal.fault(&self.censor);
        if is_elsewhere {
            fault.class = Class::WrongRegion;
        }
        fault
    }

    fn unanswered<E>(&self, error: &SdkError<E, HttpResponse>) -> Fault
    where
        E: std::error::Error + 'static,
    {
        let mut fault = net::fault(error, &self.censor);
        match error {
            SdkError::TimeoutError(_) => fault.class = Class::TimedOut,
            SdkError::ConstructionFailure(_) => fault.class = Class::Unsupported,
            SdkError::DispatchFailure(failure) if failure.is_timeout() => fault.class = Class::TimedOut,
            _ => {}
        }
        if fault.class != Class::Unreachable && net::mentions(error, "credential") {
            fault.class = Class::Credentials;
        }
        fault
    }

    async fn begin_upload(&self, key: &Key, mark: &Mark) -> Result<UploadId, Fault> {
        let begun = self
            .client
            .create_multipart_upload()
            .bucket(&self.place.bucket)
            .key(key.as_str())
            .metadata(MARK, &mark.0)
            .content_type("application/octet-stream")
            .set_server_side_encryption(self.encryption.clone())
            .set_storage_class(self.class.clone())
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        match begun.upload_id {
            Some(id) if !id.is_empty() => Ok(UploadId(id)),
            _ => Err(Fault::new(Class::Corrupt, "the store gave the upload no name")),
        }
    }

    async fn upload_part(&self, target: &Target, number: u32, body: Bytes) -> Result<Part, Fault> {
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let md5 = content_md5(&body);
        let done = self
            .client
            .upload_part()
            .bucket(&self.place.bucket)
            .key(target.key.as_str())
            .upload_id(&target.id.0)
            .part_number(i32::try_from(number).unwrap_or(i32::MAX))
            .content_md5(md5)
            .body(ByteStream::from(body))
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let tag = done
            .e_tag
            .ok_or_else(|| Fault::new(Class::Corrupt, "the store gave the part no ETag"))?;
        Ok(Part { number, tag, size })
    }

    async fn complete_upload(&self, target: &Target, parts: &[Part]) -> Result<(), Fault> {
        let parts = parts.iter().map(|part| {
            CompletedPart::builder()
                .part_number(i32::try_from(part.number).unwrap_or(i32::MAX))
                .e_tag(&part.tag)
                .build()
        });
        let list = CompletedMultipartUpload::builder().set_parts(Some(parts.collect()));
        self.client
            .complete_multipart_upload()
            .bucket(&self.place.bucket)
            .key(target.key.as_str())
            .upload_id(&target.id.0)
            .multipart_upload(list.build())
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn abort_upload(&self, target: &Target) -> Result<(), Fault> {
        self.client
            .abort_multipart_upload()
            .bucket(&self.place.bucket)
            .key(target.key.as_str())
            .upload_id(&target.id.0)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    /// An answer to HEAD has no body, so 404 may be about the bucket or the user as well: what is missing is asked for.
    async fn head_object(&self, key: &Key) -> Result<Meta, Fault> {
        match self.described(key).await {
            Err(missing) if missing.class == Class::NotFound => {
                let first = Span { from: 0, to: Some(1) };
                self.read_object(key, first, None).await?;
                // It came into being in between.
                self.described(key).await
            }
            known => known,
        }
    }

    async fn described(&self, key: &Key) -> Result<Meta, Fault> {
        let head = self
            .client
            .head_object()
            .bucket(&self.place.bucket)
            .key(key.as_str())
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let mark = head.metadata().and_then(|metadata| metadata.get(MARK)).cloned();
        Ok(Meta {
            size: size(head.content_length())?,
            etag: etag(head.e_tag())?,
            mark: mark.map(Mark),
            modified: head.last_modified().and_then(time),
        })
    }

    async fn read_object(&self, key: &Key, span: Span, wanted: Option<&Etag>) -> Result<Reading, Fault> {
        let read = self
            .client
            .get_object()
            .bucket(&self.place.bucket)
            .key(key.as_str())
            .set_range(span.header())
            .set_if_match(wanted.map(|etag| etag.0.clone()))
            .send()
            .await
            .map_err(|error| match self.fault(&error) {
                fault if fault.class == Class::Exists => Fault {
                    class: Class::Changed,
                    ..fault
                },
                fault => fault,
            })?;
        if span.header().is_some() && read.content_range().is_none() {
            let said = "the store sends the whole object instead of a range";
            return Err(Fault::new(Class::Corrupt, said));
        }
        let (etag, length) = (etag(read.e_tag())?, size(read.content_length())?);
        let censor = self.censor.clone();
        let body = stream::try_unfold((read.body, censor), |(mut body, censor)| async move {
            match body.next().await {
                None => Ok(None),
                Some(Ok(bytes)) => Ok(Some((bytes, (body, censor)))),
                Some(Err(error)) => Err(net::fault(&error, &censor)),
            }
        });
        Ok(Reading {
            etag,
            length,
            body: Box::pin(body),
        })
    }

    async fn list_objects(&self, prefix: &str, page: Option<&str>) -> Result<Page<Entry>, Fault> {
        let listed = self
            .client
            .list_objects_v2()
            .bucket(&self.place.bucket)
            .prefix(prefix)
            .set_continuation_token(page.map(str::to_owned))
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let next = listed.next_continuation_token().map(str::to_owned);
        let next = next.filter(|_| listed.is_truncated() == Some(true));
        let items = listed.contents().iter().filter_map(|object| {
            Some(Entry {
                name: object.key()?.to_owned(),
                size: size(object.size()).ok()?,
                modified: object.last_modified().and_then(time),
            })
        });
        Ok(Page {
            items: items.collect(),
            next,
        })
    }

    async fn delete_object(&self, key: &Key) -> Result<(), Fault> {
        self.client
            .delete_object()
            .bucket(&self.place.bucket)
            .key(key.as_str())
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn put_object(&self, key: &Key, body: Bytes, only_if_absent: bool) -> Result<(), Fault> {
        let md5 = content_md5(&body);
        self.client
            .put_object()
            .bucket(&self.place.bucket)
            .key(key.as_str())
            .set_if_none_match(only_if_absent.then(|| "*".to_owned()))
            .content_md5(md5)
            .set_server_side_encryption(self.encryption.clone())
            .body(ByteStream::from(body))
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn create_object(&self, key: &Key, body: Bytes) -> Result<(), Fault> {
        if !self.keeps_conditions {
            match self.must_be_absent(key).await {
                // An identity that may write and not look has the condition alone.
                Err(fault) if fault.class == Class::Forbidden => {}
                looked => looked?,
            }
        }
        match self.put_object(key, body.clone(), true).await {
            // Stores that do not know the condition and say so: a look before is the most they offer.
            Err(fault) if fault.class == Class::Unsupported => {
                self.must_be_absent(key).await?;
                self.put_object(key, body, false).await
            }
            other => other,
        }
    }

    async fn must_be_absent(&self, key: &Key) -> Result<(), Fault> {
        match self.head_object(key).await {
            Ok(_) => Err(Fault::new(Class::Exists, "it is there")),
            Err(missing) if missing.class == Class::NotFound => Ok(()),
            Err(other) => Err(other),
        }
    }

    async fn list_begun(&self, prefix: &str, page: Option<&str>) -> Result<Page<Begun>, Fault> {
        let (key, id) = page.and_then(|page| page.split_once(BETWEEN)).unzip();
        let listed = self
            .client
            .list_multipart_uploads()
            .bucket(&self.place.bucket)
            .prefix(prefix)
            .set_key_marker(key.map(str::to_owned))
            .set_upload_id_marker(id.map(str::to_owned))
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let items = listed.uploads().iter().filter_map(|upload| {
            Some(Begun {
                name: upload.key()?.to_owned(),
                id: UploadId(upload.upload_id()?.to_owned()),
                at: upload.initiated().and_then(time)?,
            })
        });
        let next = (listed.is_truncated() == Some(true)).then(|| {
            let (key, id) = (listed.next_key_marker(), listed.next_upload_id_marker());
            format!("{}{BETWEEN}{}", key.unwrap_or_default(), id.unwrap_or_default())
        });
        Ok(Page {
            items: items.collect(),
            next,
        })
    }
}

fn size(length: Option<i64>) -> Result<u64, Fault> {
    length
        .and_then(|length| u64::try_from(length).ok())
        .ok_or_else(|| Fault::new(Class::Corrupt, "the store gave the object no size"))
}

fn etag(etag: Option<&str>) -> Result<Etag, Fault> {
    etag.map(|etag| Etag(etag.to_owned()))
        .ok_or_else(|| Fault::new(Class::Corrupt, "the store gave the object no ETag"))
}

fn time(time: &DateTime) -> Option<Timestamp> {
    Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}
