/* Moves the time of day of a program that is started with this library in LD_PRELOAD, by as many seconds as the file
 * BACKUP_TESTS_CLOCK says (eight bytes), which may change while the program runs. The monotonic clock is left
 * alone, as when somebody sets the clock of a machine. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *moved;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("BACKUP_TESTS_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *memory = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED) moved = memory;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, id, time);
    if (result == 0 && id == CLOCK_REALTIME && moved) time->tv_sec += *moved;
    return result;
}
