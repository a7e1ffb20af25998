/*
 * Stands between a program and the calls that make data durable: counts them, and holds them while
 * told to. The control file is mapped into the program and read and written by the test.
 *
 * Layout of the control file, all numbers in the machine's byte order:
 *   0  u32  nonzero while calls are to be held
 *   4  u32  calls that are held now
 *   8  u64  fdatasync calls made
 *  16  u64  fsync calls made
 *  24  u64  sync_file_range calls made
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct control {
    _Atomic uint32_t hold;
    _Atomic uint32_t held;
    _Atomic uint64_t fdatasyncs;
    _Atomic uint64_t fsyncs;
    _Atomic uint64_t ranges;
};

static struct control *control;

__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv("RINGKV_SYNC_CONTROL");
    if (path == NULL) return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = MAP_FAILED;
    if (file >= 0) {
        mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    if (mapped == MAP_FAILED) {
        /* A shim that does nothing would let every test pass. */
        static const char message[] = "the control file of the sync shim cannot be mapped\n";
        ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
        (void)ignored;
        _exit(97);
    }
    control = mapped;
}

static void wait_while_held(void) {
    if (atomic_load(&control->hold) == 0) return;
    const struct timespec pause = {0, 1000000};
    atomic_fetch_add(&control->held, 1);
    while (atomic_load(&control->hold) != 0) nanosleep(&pause, NULL);
    atomic_fetch_sub(&control->held, 1);
}

int fdatasync(int file) {
    if (control != NULL) {
        atomic_fetch_add(&control->fdatasyncs, 1);
        wait_while_held();
    }
    return (int)syscall(SYS_fdatasync, file);
}

int fsync(int file) {
    if (control != NULL) {
        atomic_fetch_add(&control->fsyncs, 1);
        wait_while_held();
    }
    return (int)syscall(SYS_fsync, file);
}

int sync_file_range(int file, off64_t offset, off64_t bytes, unsigned int flags) {
    if (control != NULL) {
        atomic_fetch_add(&control->ranges, 1);
        wait_while_held();
    }
    return (int)syscall(SYS_sync_file_range, file, offset, bytes, flags);
}
