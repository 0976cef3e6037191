// SPDX-License-Identifier: GPL-2.0
/*
 * Holds one thing of the module until it is killed: the device, a segment's descriptor, or a
 * mapping of a segment. A file /tmp/held-NAME says that it has it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <segshm.h>

/* A segment, without the device and the memfd that it was made with. */
static int segment(int device)
{
	struct segshm_create request = {};
	int made, memory = memfd_create("held", MFD_ALLOW_SEALING);

	if (memory < 0 || ftruncate(memory, SEGSHM_UNIT) || posix_fallocate(memory, 0, SEGSHM_UNIT))
		return -1;
	if (fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -1;
	request.memfd = memory;
	made = ioctl(device, SEGSHM_CREATE, &request);
	close(memory);
	close(device);
	return made;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int held = open("/dev/segshm", O_RDWR);
	char name[64];
	volatile char *at;

	if (strcmp(what, "device"))
		held = segment(held);
	if (held < 0)
		return 1;
	if (!strcmp(what, "mapping")) {
		at = mmap(NULL, SEGSHM_UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, held, 0);
		if (at == MAP_FAILED)
			return 1;
		at[0] = 1;
		close(held);
	}
	snprintf(name, sizeof(name), "/tmp/held-%s", what);
	close(open(name, O_CREAT | O_WRONLY, 0600));
	pause();
	return 0;
}
