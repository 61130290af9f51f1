//! A layer of files over another one, which opens files in a way of its own.

use entresol_files::places::Places;
use entresol_files::{FileData, FileId, FileLayer, OpenDirectory};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// A layer whose files `open` opens, by the layer below it. All other calls are that layer's.
pub(crate) struct Opening<F> {
    layer: Arc<dyn FileLayer>,
    open: F,
}

impl<F> Opening<F>
where
    F: Fn(&dyn FileLayer, FileId, File, bool) -> io::Result<Arc<dyn FileData>> + Send + Sync + 'static,
{
    pub(crate) fn over(layer: Arc<dyn FileLayer>, open: F) -> Arc<dyn FileLayer> {
        Arc::new(Opening { layer, open })
    }
}

impl<F> FileLayer for Opening<F>
where
    F: Fn(&dyn FileLayer, FileId, File, bool) -> io::Result<Arc<dyn FileData>> + Send + Sync + 'static,
{
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        (self.open)(&*self.layer, id, file, writable)
    }

    fn places(&self) -> Option<Arc<Places>> {
        self.layer.places()
    }

    fn leaving(&self, id: FileId, directory: OpenDirectory<'_>) -> io::Result<()> {
        self.layer.leaving(id, directory)
    }

    fn stays(&self, id: FileId) {
        self.layer.stays(id);
    }

    fn replacing(&self, id: FileId) -> io::Result<()> {
        self.layer.replacing(id)
    }

    fn removed(&self, id: FileId) {
        self.layer.removed(id);
    }

    fn changing_rights(&self, id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.layer.changing_rights(id, act)
    }

    fn while_still(&self, id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.layer.while_still(id, act)
    }

    fn changing(&self, id: FileId) -> Option<Box<dyn Send>> {
        self.layer.changing(id)
    }

    fn when_stale(&self, tell: Box<dyn Fn(u64) + Send + Sync>) {
        self.layer.when_stale(tell);
    }
}
