/* matrix - the product of two square matrices, by rows (Forin et al. 1988, section 7.3).
 *
 * Each activity computes some rows of the product by the plain triple loop. Rows of two activities are never in one page.
 * The elements are small whole numbers, so that every sum is exact and results are equal or wrong. */
#include "app.h"

static const app_kind MATRIX = {"matrix", 1024, 1, 1, 8192};

/* How a matrix lies in memory: each row begins so many elements after the one before. */
static uint64_t stride_of(uint64_t size) {
    uint64_t bytes = size * sizeof(double);
    if (bytes >= APP_PAGE) return app_pages(bytes) / sizeof(double);
    uint64_t stride = 1;
    while (stride < size) stride *= 2;
    return stride;
}

static size_t matrix_bytes(uint64_t size) { return app_pages(size * stride_of(size) * sizeof(double)); }

static double *matrix_of(const app *app, int which) {
    return (double *)(app->shared + which * matrix_bytes(app->size));
}

static void fill(app *app) {
    uint64_t size = app->size, stride = stride_of(size);
    for (int which = 0; which < 2; which++) {
        double *matrix = matrix_of(app, which);
        for (uint64_t i = 0; i < size; i++) {
            for (uint64_t j = 0; j < size; j++) {
                matrix[i * stride + j] = (double)(app_random(app->seed + which, i * size + j) % 16) - 8;
            }
        }
    }
}

static void multiply(const app *app) {
    const double *a = matrix_of(app, 0), *b = matrix_of(app, 1);
    double *c = matrix_of(app, 2);
    uint64_t size = app->size, stride = stride_of(size);
    uint64_t unit = stride * sizeof(double) < APP_PAGE ? APP_PAGE / (stride * sizeof(double)) : 1;
    uint64_t end = app_share(app, app->me + 1, size, unit);
    for (uint64_t i = app_share(app, app->me, size, unit); i < end; i++) {
        for (uint64_t j = 0; j < size; j++) {
            double sum = 0;
            for (uint64_t k = 0; k < size; k++) sum += a[i * stride + k] * b[k * stride + j];
            c[i * stride + j] = sum;
        }
    }
}

/* A matrix, whose rows are so far apart, times a vector. */
static void times_vector(const double *matrix, uint64_t size, const double *vector, double *product) {
    uint64_t stride = stride_of(size);
    for (uint64_t i = 0; i < size; i++) {
        product[i] = 0;
        for (uint64_t k = 0; k < size; k++) product[i] += matrix[i * stride + k] * vector[k];
    }
}

/* Freivalds' check: C = A B if C x = A (B x) for vectors that whoever computed C did not know. A wrong matrix passes one of
 * them with a probability of 2^-20 at most, and all of them never. Every number in it is whole and below 2^53. */
static int is_product(const app *app) {
    uint64_t size = app->size;
    double *x = app_take(app, 4 * size * sizeof *x), *bx = x + size, *abx = bx + size, *cx = abx + size;
    int right = 1;
    for (int time = 0; time < 3; time++) {
        for (uint64_t k = 0; k < size; k++) x[k] = (double)(app_random(app->seed + 7 + time, k) >> 44);
        times_vector(matrix_of(app, 1), size, x, bx);
        times_vector(matrix_of(app, 0), size, bx, abx);
        times_vector(matrix_of(app, 2), size, x, cx);
        for (uint64_t i = 0; i < size; i++) right &= abx[i] == cx[i];
    }
    return right;
}

int main(int argc, char **argv) {
    app app;
    app_arguments(&app, &MATRIX, argc, argv);
    app_begin(&app, 3 * matrix_bytes(app.size), 0, fill);
    app_start(&app);
    for (uint64_t step = 0; step < app.steps; step++) multiply(&app);
    app_stop(&app);
    if (app.me > 0) app_report(&app, 1, "");
    uint64_t digest = 0, stride = stride_of(app.size);
    for (uint64_t at = 0; at < app.size * app.size; at++) {
        int64_t element = (int64_t)matrix_of(&app, 2)[at / app.size * stride + at % app.size];
        digest = app_digest(digest, (uint64_t)element);
    }
    char more[64];
    snprintf(more, sizeof more, ", \"digest\": \"%016llx\"", (unsigned long long)digest);
    app_report(&app, is_product(&app), more);
}
