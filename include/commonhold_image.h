/* commonhold_image.h - code images from programs (docs/IMAGES.md): what every stub of `commonhold image stub` has.
 *
 * A program whose stub includes at the start needs nothing of this. With `--include call` it calls
 *
 *     int why = commonhold_image_include("words@1");
 *     if (why) fprintf(stderr, "%s\n", commonhold_image_error(why));
 *
 * before any function of the image. From any thread, as often as it likes: the image is included once.
 */
#ifndef COMMONHOLD_IMAGE_H
#define COMMONHOLD_IMAGE_H

#ifdef __cplusplus
extern "C" {
#endif

/* What is in the way of an inclusion. */
enum {
    COMMONHOLD_IMAGE_NOT_THERE = 1,     /* the store has no such image */
    COMMONHOLD_IMAGE_NOT_READABLE = 2,  /* its file cannot be opened */
    COMMONHOLD_IMAGE_NOT_TRUSTED = 3,   /* others than root and this user could have written it */
    COMMONHOLD_IMAGE_DAMAGED = 4,       /* damaged or truncated */
    COMMONHOLD_IMAGE_ANOTHER = 5,       /* another image, base or processor than the program was linked with */
    COMMONHOLD_IMAGE_OLDER = 6,         /* an older minor version than the program was linked with */
    COMMONHOLD_IMAGE_TAKEN = 7,         /* its addresses are in use in this process */
    COMMONHOLD_IMAGE_NO_ROOM = 8,       /* no room for addresses (ulimit -v) */
    COMMONHOLD_IMAGE_NO_EXEC = 9,       /* its code may not be mapped to be run (noexec, a sandbox) */
    COMMONHOLD_IMAGE_TABLE = 10,        /* it calls functions that the program does not hand over */
    COMMONHOLD_IMAGE_NOT_LINKED = 11,   /* the program has no stub of it */
    COMMONHOLD_IMAGE_GROUP = 12,        /* another image of its group is there */
    COMMONHOLD_IMAGE_VERSION = 13       /* another version of Commonhold made it than the stub */
};

/* Includes the image of that name and major version, whose stub the program is linked to. 0, or one of the above. */
int commonhold_image_include(const char *name);

/* What a number says, in one line. */
const char *commonhold_image_error(int why);

#ifdef __cplusplus
}
#endif
#endif
