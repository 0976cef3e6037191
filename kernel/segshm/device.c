// SPDX-License-Identifier: GPL-2.0
/*
 * segshm: segments whose page tables processes share. Here are the device, by which root makes
 * segments, and the descriptors of segments. README.md says what may happen to a shared page table.
 */
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <asm/cpufeature.h>
#include "compat.h"
#include "segshm.h"

struct workqueue_struct *segshm_workers;

static const struct file_operations segment_fops;

/*
 * A new descriptor of a segment. It takes over the caller's reference, unless it fails. Its inode has
 * the number of the memfd's, by which /proc/PID/maps tells what is mapped through it.
 */
static int segment_descriptor(struct segshm_segment *segment, int access)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);
	struct file *file;

	if (fd < 0)
		return fd;
	file = anon_inode_create_getfile("[segshm]", &segment_fops, segment, access, NULL);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	file_inode(file)->i_ino = file_inode(segment->memfd)->i_ino;
	fd_install(fd, file);
	return fd;
}

/* --- descriptors of segments ---------------------------------------------------------------- */

static long read_only(struct segshm_segment *segment)
{
	int result = segshm_segment_make_read_only(segment);

	if (result)
		return result;
	refcount_inc(&segment->files);
	result = segment_descriptor(segment, O_RDONLY);
	if (result < 0)
		segshm_segment_put(segment);
	return result;
}

/*
 * Opens the memfd anew, for no more than what the segment's descriptor is for. It stays sealed: who
 * has it changes neither the size nor the frames that tables point to.
 */
static long memory(struct file *file)
{
	struct segshm_segment *segment = file->private_data;
	int access = file->f_mode & FMODE_WRITE ? O_RDWR : O_RDONLY;
	struct file *opened;
	int fd = get_unused_fd_flags(O_CLOEXEC);

	if (fd < 0)
		return fd;
	opened = dentry_open(&segment->memfd->f_path, access | O_LARGEFILE, current_cred());
	if (IS_ERR(opened)) {
		put_unused_fd(fd);
		return PTR_ERR(opened);
	}
	fd_install(fd, opened);
	return fd;
}

static long segment_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct segshm_segment *segment = file->private_data;
	struct segshm_info info = {};

	switch (cmd) {
	case SEGSHM_INFO:
		segshm_segment_info(segment, &info);
		if (file->f_mode & FMODE_WRITE)
			info.flags |= SEGSHM_WRITABLE;
		return copy_to_user((void __user *)arg, &info, sizeof(info)) ? -EFAULT : 0;
	case SEGSHM_READ_ONLY:
		return read_only(segment);
	case SEGSHM_MEMORY:
		return memory(file);
	default:
		return -ENOTTY;
	}
}

static int segment_release(struct inode *inode, struct file *file)
{
	segshm_segment_put(file->private_data);
	return 0;
}

static const struct file_operations segment_fops = {
	.owner = THIS_MODULE,
	.mmap = segshm_mmap,
	.get_unmapped_area = segshm_get_unmapped_area,
	.unlocked_ioctl = segment_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = segment_release,
	.fsync = noop_fsync,	/* msync is no error, as with shmem */
	.llseek = noop_llseek,
};

/* --- the device ----------------------------------------------------------------------------- */

static long create(struct segshm_create __user *from)
{
	struct segshm_segment *segment;
	struct segshm_create request;
	struct file *memfd;
	kuid_t owner;
	int result;

	if (copy_from_user(&request, from, sizeof(request)))
		return -EFAULT;
	owner = make_kuid(current_user_ns(), request.owner);
	if (request.flags || request.reserved || !uid_valid(owner))
		return -EINVAL;
	memfd = fget(request.memfd);
	if (!memfd)
		return -EBADF;
	segment = segshm_segment_create(memfd, owner);
	fput(memfd);
	if (IS_ERR(segment))
		return PTR_ERR(segment);
	result = segment_descriptor(segment, O_RDWR);
	if (result < 0)
		segshm_segment_put(segment);
	return result;
}

/* A host that lost its own descriptor is brought another one, maybe one that maps to read only. */
static long reopen(s32 __user *from)
{
	struct segshm_segment *segment;
	struct file *file;
	s32 fd;
	int result;

	if (get_user(fd, from))
		return -EFAULT;
	file = fget(fd);
	if (!file)
		return -EBADF;
	if (file->f_op != &segment_fops) {
		fput(file);
		return -EINVAL;
	}
	segment = file->private_data;
	refcount_inc(&segment->files);
	fput(file);
	result = segment_descriptor(segment, O_RDWR);
	if (result < 0)
		segshm_segment_put(segment);
	return result;
}

static long usage(struct segshm_usage __user *at)
{
	struct segshm_usage usage;
	kuid_t owner;

	if (copy_from_user(&usage, at, sizeof(usage)))
		return -EFAULT;
	owner = make_kuid(current_user_ns(), usage.owner);
	if (usage.reserved || !uid_valid(owner))
		return -EINVAL;
	segshm_owner_usage(owner, &usage);
	return copy_to_user(at, &usage, sizeof(usage)) ? -EFAULT : 0;
}

/* The machine's root, also where a service manager has left it no capability. */
static bool may_make_segments(void)
{
	return uid_eq(current_euid(), GLOBAL_ROOT_UID) || capable(CAP_SYS_ADMIN);
}

/* The descriptor may have been passed on: each call asks again. */
static long device_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	if (!may_make_segments())
		return -EPERM;
	switch (cmd) {
	case SEGSHM_VERSION:
		return SEGSHM_INTERFACE;
	case SEGSHM_CREATE:
		return create((void __user *)arg);
	case SEGSHM_REOPEN:
		return reopen((void __user *)arg);
	case SEGSHM_USAGE:
		return usage((void __user *)arg);
	default:
		return -ENOTTY;
	}
}

static int device_open(struct inode *inode, struct file *file)
{
	return may_make_segments() ? 0 : -EPERM;
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.open = device_open,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "segshm",
	.fops = &device_fops,
	.mode = 0600,
};

static int __init segshm_init(void)
{
	int error;

	/* There page tables are the hypervisor's, which accepts a table only if it is told first. */
	if (cpu_feature_enabled(X86_FEATURE_XENPV))
		return -ENODEV;
	segshm_owner_init();
	segshm_workers = alloc_workqueue("segshm", WQ_UNBOUND, 0);
	if (!segshm_workers)
		return -ENOMEM;
	error = misc_register(&device);
	if (error)
		destroy_workqueue(segshm_workers);
	return error;
}

static void __exit segshm_exit(void)
{
	misc_deregister(&device);
	destroy_workqueue(segshm_workers);
	mmu_notifier_synchronize();
}

module_init(segshm_init);
module_exit(segshm_exit);
MODULE_DESCRIPTION("Segments whose page tables processes share");
MODULE_AUTHOR("The Commonhold developers");
MODULE_LICENSE("GPL");
