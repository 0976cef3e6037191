//! Another size for an object.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::{
    Access, CreateOptions, Error, ErrorKind, Name, PAGE_SIZE_BYTES, PagerKind, Result, pages_of,
};
use commonhold_sys::frames;
use std::sync::Arc;

impl Host {
    pub(super) fn resize(self: &Arc<Self>, session: &Session, name: &Name, size_bytes: u64) -> Result<()> {
        let object = self.lookup(session, name, Access::ReadWrite)?;
        let result = object.hold().and_then(|_held| {
            let _one_at_a_time = lock(&object.resizing);
            self.resize_object(&object, size_bytes)
        });
        // Its name may have gone meanwhile, and its last user.
        self.settle_object(object.id);
        result
    }

    fn resize_object(self: &Arc<Self>, object: &Arc<Object>, size_bytes: u64) -> Result<()> {
        object.check_access(Access::ReadWrite)?;
        let options = CreateOptions { size_bytes, ..object.record().options.clone() };
        if size_bytes == 0 {
            return Err(Error::invalid("the size is zero: remove the object instead"));
        }
        options.check()?;
        self.refuse_shared(&object.record().clone(), "another size")?;
        let external = matches!(options.pager, PagerKind::External { .. });
        if external && size_bytes < object.record().options.size_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the object of an external pager cannot shrink: its pager is not told of sizes, and would show the \
                 old bytes again when it grows; create a smaller one and copy",
            ));
        }
        let charged = self.limits.counted(object.record().charged_uid, &options);
        lock(&self.registry).check_size(object.id, charged)?;
        self.resize_memory(object, &options)?;
        let mut registry = lock(&self.registry);
        *object.record() = registry.set_size(object.id, size_bytes, charged)?;
        Ok(())
    }

    fn resize_memory(self: &Arc<Self>, object: &Arc<Object>, options: &CreateOptions) -> Result<()> {
        let old_bytes = object.record().options.size_bytes;
        let bytes = pages_of(options.size_bytes) * PAGE_SIZE_BYTES;
        if object.is_controlled() {
            if options.reserves() && options.pager == PagerKind::Anonymous && options.size_bytes > old_bytes {
                let record = object.record().clone();
                self.reserve_spill(&record, bytes, bytes - pages_of(old_bytes) * PAGE_SIZE_BYTES)?;
            }
            return self.cache_of(object)?.resize(options.size_bytes);
        }
        let fd =
            object.descriptor().ok_or_else(|| Error::new(ErrorKind::Lost, "the object's memory is gone"))?;
        let (length, anonymous) = match options.pager {
            PagerKind::File => (options.size_bytes, false),
            _ => (bytes, true),
        };
        let old_length =
            rustix::fs::fstat(&*fd).map_err(std::io::Error::from).doing("resizing")?.st_size as u64;
        let cut = |length| {
            rustix::fs::ftruncate(&*fd, length).map_err(std::io::Error::from).doing("resizing the object")
        };
        if options.size_bytes < old_bytes {
            cut(options.size_bytes)?; // what is past the end in the last page must be zero if the object grows again
        }
        cut(length)?;
        if options.reserves() && length > old_length {
            let reserved =
                (if anonymous { super::status::check_memory_for(length - old_length) } else { Ok(()) })
                    .and_then(|()| {
                        frames::allocate(&*fd, old_length, length - old_length).doing("reserving memory")
                    });
            if let Err(error) = reserved {
                let _ = rustix::fs::ftruncate(&*fd, old_length);
                return Err(error);
            }
        }
        Ok(())
    }
}
