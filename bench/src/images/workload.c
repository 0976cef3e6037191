/* What each of the twenty programs does with SQLite: a table, an index, rows, joins, text, a view, a trigger. */
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

static int rows(void *count, int columns, char **values, char **names) {
    (void)columns; (void)values; (void)names;
    return ++*(int *)count, 0;
}

int main(void) {
    static const char *const work[] = {
        "create table people(id integer primary key, name text not null, born int, place text)",
        "create table papers(id integer primary key, author int references people(id), title text, year int)",
        "create index by_author on papers(author, year)",
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 500)"
        " insert into people select i, printf('%s-%04d', char(65 + i % 26), i), 1900 + i % 99, hex(i * 7919) from n",
        "insert into papers select id * 3 + k, id, upper(name) || ' on ' || place, born + 30 + k"
        " from people, (select 0 k union select 1 union select 2)",
        "create view busy as select author, count(*) c, max(year) last from papers group by author having c > 2",
        "create trigger moved after update of place on people begin update papers set year = year + 1"
        " where author = new.id; end",
        "update people set place = lower(place) where id % 10 = 3",
        "select p.name, b.last from people p join busy b on b.author = p.id where p.name like 'A%' order by b.last desc",
        "select substr(title, 1, 3) t, avg(year), group_concat(distinct year) from papers group by t order by 2 limit 9",
        "select name, rank() over (partition by place order by born) from people where born between 1910 and 1950",
        "select json_group_array(json_object('n', name, 'b', born)) from people where id < 40",
        "select date('2000-01-01', '+' || id || ' days'), round(sqrt(id), 3) from people where id in (1, 4, 9)",
        "delete from papers where year < (select avg(year) from papers)",
        "pragma integrity_check",
        "vacuum",
    };
    sqlite3 *database;
    int count = 0;
    char *why = 0;
    if (sqlite3_open(":memory:", &database) != SQLITE_OK) return 1;
    for (unsigned i = 0; i < sizeof work / sizeof *work; i++) {
        if (sqlite3_exec(database, work[i], rows, &count, &why) != SQLITE_OK) {
            fprintf(stderr, "%s: %s\n", work[i], why);
            return 2;
        }
    }
    sqlite3_close(database);
    printf("%d rows, program %d\n", count, NUMBER);
    fflush(stdout);
    char byte;
    return read(0, &byte, 1) < 0; /* until the one who measures has looked */
}
