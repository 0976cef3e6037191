/* matrix - the product of two square matrices, by rows (Forin et al. 1988, section 7.3).
 *
 * Each activity computes some rows of the product by the plain triple loop. Rows of two activities
 * are never in one page. The elements are small whole numbers, so that every sum is exact and
 * results are equal or wrong. */
#include "app.h"

static const app_kind MATRIX = {"matrix", 1024, 1, 1, 8192};

/* How a matrix lies in memory: each row begins so many elements after the one before. Rows of A and
 * C are parts of a page, or whole pages. B is read alone, by columns: its rows are a line of the
 * cache apart from a multiple of its size, or all of a column would lie in the same few places of
 * the cache, or not, as the kernel has given out pages. B is the last: what is read in order is
 * brought in ahead, and behind it there would be pages that others write. */
enum { C, A, B };

static uint64_t stride_of(uint64_t size, int which) {
    if (which == B) return size + 16 - size % 16 + (size / 16 % 2 ? 16 : 0);
    uint64_t bytes = size * sizeof(float);
    if (bytes >= APP_PAGE) return app_pages(bytes) / sizeof(float);
    uint64_t stride = 1;
    while (stride < size) stride *= 2;
    return stride;
}

static size_t matrix_bytes(const app *app, int which) {
    size_t bytes = app->size * stride_of(app->size, which) * sizeof(float);
    return (bytes + app->page_size - 1) & ~(app->page_size - 1);
}

static float *matrix_of(const app *app, int which) {
    size_t before = 0;
    for (int other = C; other < which; other++) before += matrix_bytes(app, other);
    return (float *)(app->shared + before);
}

static void fill(app *app) {
    uint64_t size = app->size;
    for (int which = A; which <= B; which++) {
        float *matrix = matrix_of(app, which);
        uint64_t stride = stride_of(size, which);
        for (uint64_t i = 0; i < size; i++) {
            for (uint64_t j = 0; j < size; j++) {
                matrix[i * stride + j] =
                    (float)(app_random(app->seed + which - A, i * size + j) % 16) - 8;
            }
        }
    }
}

static void multiply(const app *app) {
    const float *a = matrix_of(app, A), *b = matrix_of(app, B);
    float *c = matrix_of(app, C);
    uint64_t size = app->size, stride = stride_of(size, C), column = stride_of(size, B);
    /* Rows of whole pages of the object: a row's bytes are a multiple of this power of two. */
    uint64_t row = stride * sizeof(float), power = row & -row;
    uint64_t unit = power < app->page_size ? app->page_size / power : 1;
    uint64_t end = app_share(app, app->me + 1, size, unit);
    for (uint64_t i = app_share(app, app->me, size, unit); i < end; i++) {
        for (uint64_t j = 0; j < size; j++) {
            double sum = 0;
            for (uint64_t k = 0; k < size; k++)
                sum += (double)a[i * stride + k] * b[k * column + j];
            c[i * stride + j] = (float)sum;
        }
    }
}

/* A matrix times a vector. */
static void times_vector(const app *app, int which, const double *vector, double *product) {
    const float *matrix = matrix_of(app, which);
    uint64_t size = app->size, stride = stride_of(size, which);
    for (uint64_t i = 0; i < size; i++) {
        product[i] = 0;
        for (uint64_t k = 0; k < size; k++) product[i] += matrix[i * stride + k] * vector[k];
    }
}

/* Freivalds' check: C = A B if C x = A (B x) for vectors that whoever computed C did not know. A
 * wrong matrix passes one of them with a probability of 2^-20 at most, and all of them never. Every
 * number in it is whole and below 2^53. */
static int is_product(const app *app) {
    uint64_t size = app->size;
    double *x = app_take(app, 4 * size * sizeof *x), *bx = x + size, *abx = bx + size,
           *cx = abx + size;
    int right = 1;
    for (int time = 0; time < 3; time++) {
        for (uint64_t k = 0; k < size; k++)
            x[k] = (double)(app_random(app->seed + 7 + time, k) >> 44);
        times_vector(app, B, x, bx);
        times_vector(app, A, bx, abx);
        times_vector(app, C, x, cx);
        for (uint64_t i = 0; i < size; i++) right &= abx[i] == cx[i];
    }
    return right;
}

int main(int argc, char **argv) {
    app app;
    app_arguments(&app, &MATRIX, argc, argv);
    app_begin(&app, 2 * matrix_bytes(&app, A) + matrix_bytes(&app, B), 0, fill);
    app_start(&app);
    for (uint64_t step = 0; step < app.steps; step++) multiply(&app);
    app_stop(&app);
    if (app.me > 0) app_report(&app, 1, "");
    uint64_t digest = 0, stride = stride_of(app.size, C);
    for (uint64_t at = 0; at < app.size * app.size; at++) {
        int64_t element = (int64_t)matrix_of(&app, C)[at / app.size * stride + at % app.size];
        digest = app_digest(digest, (uint64_t)element);
    }
    char more[64];
    snprintf(more, sizeof more, ", \"digest\": \"%016llx\"", (unsigned long long)digest);
    app_report(&app, is_product(&app), more);
}
