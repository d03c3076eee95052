/* SPDX-License-Identifier: Apache-2.0 */
#include "label/csv.h"

#include "base/text.h"

#include "tap.h"

static struct chex_error err;

/* All records with '|' between fields and "N:" before each, N being its line, '/' after it. */
static enum chex_status render(const char *text, size_t size, char *out) {
    char *copy = malloc(size + 1); // the exact size, for the sanitizer
    BAIL_UNLESS(copy, "no memory");
    memcpy(copy, text, size);
    copy[size] = '\0';
    struct chex_csv csv;
    chex_csv_init(&csv, "f.csv", copy, size);
    bool more = false;
    enum chex_status st;
    *out = '\0';
    while ((st = chex_csv_next(&csv, &more, &err)) == CHEX_OK && more) {
        out += sprintf(out, "%zu:", csv.line);
        for (size_t i = 0; i < csv.count; i++)
            out += sprintf(out, "%s%s", i ? "|" : "", csv.fields[i]);
        out += sprintf(out, "/");
    }
    chex_csv_release(&csv);
    free(copy);
    return st;
}

static void reads(const char *text, const char *want) {
    char got[4096];
    enum chex_status st = render(text, strlen(text), got);
    OK(st == CHEX_OK && !strcmp(got, want), "reads as %s (%s%s)", want, got, err.text);
}

static void refuses(const char *text, size_t size, const char *needle) {
    char got[4096];
    OK_STATUS(render(text, size, got), CHEX_E_DATA, err, needle);
}
#define REFUSES(text, needle) refuses(text, sizeof(text) - 1, needle)

/* A header, its columns by name, rows as wide, and the text of a fault. */
static void check_table(void) {
    char text[] = "\n\"a,x\",b,c,b\n1,2,3,4\n5,6,7\n";
    struct chex_csv csv;
    bool more = false;
    int column = -7;
    chex_csv_init(&csv, "f.csv", text, sizeof text - 1);
    OK_CALL(chex_csv_header(&csv, &err));
    OK_CALL(chex_csv_find(&csv, "c", "it", &column, &err));
    OK(csv.name_count == 4 && column == 2, "a column by name");
    OK_STATUS(chex_csv_find(&csv, "d", "columns 'c' and 'd'", &column, &err), CHEX_E_DATA, err,
              "f.csv: line 1: the header has no column 'd', expected columns 'c' and 'd'");
    OK_STATUS(chex_csv_find(&csv, "b", NULL, &column, &err), CHEX_E_DATA, err,
              "columns 2 and 4 are both 'b', expected one");
    OK(column == 2, "nothing is written on failure");
    OK_CALL(chex_csv_find(&csv, "d", NULL, &column, &err));
    OK(column == -1, "one that may be absent");
    OK_CALL(chex_csv_row(&csv, &more, &err));
    OK(more && !strcmp(csv.fields[3], "4") && !strcmp(csv.names[0], "a,x"),
       "a row, and the names are still there");
    OK_STATUS(chex_csv_fault(&csv, 0, "more", &err), CHEX_E_DATA, err,
              "f.csv: line 3, column 1 (a,x): '1', expected more");
    OK_STATUS(chex_csv_row(&csv, &more, &err), CHEX_E_DATA, err,
              "f.csv: line 4: 3 columns, expected 4 as in the header");
    chex_csv_release(&csv);
    char again[] = "a,b\n1,2\na,b\na,3\na,b\n";
    chex_csv_init(&csv, "f.csv", again, sizeof again - 1);
    OK_CALL(chex_csv_header(&csv, &err));
    OK(chex_csv_row(&csv, &more, &err) == CHEX_OK && more && csv.line == 2 &&
           chex_csv_row(&csv, &more, &err) == CHEX_OK && more && csv.line == 4 &&
           chex_csv_row(&csv, &more, &err) == CHEX_OK && !more,
       "the header once more, of a file appended to another, is no row");
    chex_csv_release(&csv);
    char semicolons[] = "\n\"a,a,a\";b\n\"1,2\";-0,5\n", commas[] = "a,b;c\n1,\"2,5\"\n";
    double number = 0;
    chex_csv_init(&csv, "f.csv", semicolons, sizeof semicolons - 1);
    OK(chex_csv_header(&csv, &err) == CHEX_OK && chex_csv_row(&csv, &more, &err) == CHEX_OK &&
           csv.count == 2 && !strcmp(csv.fields[0], "1,2") && chex_csv_number(&csv, 1, &number) &&
           number == -0.5 && !strcmp(chex_csv_separators(&csv), "semicolons"),
       "separators in quotes do not count; with semicolons a number may have a decimal comma");
    chex_csv_release(&csv);
    chex_csv_init(&csv, "f.csv", commas, sizeof commas - 1);
    OK(chex_csv_header(&csv, &err) == CHEX_OK && chex_csv_row(&csv, &more, &err) == CHEX_OK &&
           csv.count == 2 && !chex_csv_number(&csv, 1, &number),
       "with commas it may not: 1,234 could be a thousand");
    chex_csv_release(&csv);
    char none[] = "\n\n", shown[12];
    chex_csv_init(&csv, "f.csv", none, 2);
    OK_STATUS(chex_csv_header(&csv, &err), CHEX_E_DATA, err, "f.csv: empty file");
    chex_csv_release(&csv);
    OK(!strcmp(chex_text_printable("12345678", shown, sizeof shown), "12345678") &&
           !strcmp(chex_text_printable("123456789", shown, sizeof shown), "12345678...") &&
           !strcmp(chex_text_printable("a\x01z", shown, sizeof shown), "a\\x01z"),
       "values are shortened and made printable");
}

static void check_utf8(void) {
    OK(chex_text_is_utf8("") && chex_text_is_utf8("plain.png") &&
           chex_text_is_utf8("M\xC3\xBCller") && chex_text_is_utf8("\xE2\x82\xAC") &&
           chex_text_is_utf8("\xF0\x9F\xA9\xBB") &&
           chex_text_is_utf8("\xED\x9F\xBF\xF4\x8F\xBF\xBF"),
       "one to four bytes are UTF-8");
    static const char *const bad[] = {"c\xFF.png",    "M\xFCller",        "\x80",
                                      "\xC3",         "\xE2\x82",         "\xE2\x82z",
                                      "\xC1\xBF",     "\xE0\x9F\xBF",     "\xF0\x8F\xBF\xBF",
                                      "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        OK(!chex_text_is_utf8(bad[i]), "text %zu is not: lone, cut, overlong, surrogate, too high",
           i);
}

static void check_for_json(void) {
    OK_STATUS(chex_text_for_json("--output", "M\xFCller", "--json", &err), CHEX_E_USAGE, err,
              "--output 'M\\xFCller': the name is no UTF-8 text, as --json needs");
    OK_CALL(chex_text_for_json("--output", "M\xC3\xBCller", "--json", &err));
    OK_CALL(chex_text_for_json("--init", NULL, "--plan", &err));
}

int main(void) {
    check_table();
    check_utf8();
    check_for_json();
    reads("", "");
    reads("\n\r\n", "");
    reads("a", "1:a/");
    reads("a,b\nc,d\n", "1:a|b/2:c|d/");
    reads("a,b\r\nc,d", "1:a|b/2:c|d/");
    reads("a,b\r", "1:a|b/");
    reads("\xEF\xBB\xBF"
          "a,b\n",
          "1:a|b/");
    reads("\xEF\xBB\xBF\"a\",b\n", "1:a|b/");
    reads("a,,\n,\n", "1:a||/2:|/");
    reads("a\n\n\r\nb\n", "1:a/4:b/");
    reads("\"a,b\",c\n", "1:a,b|c/");
    reads("\"a \"\"b\"\"\",\"\"\n", "1:a \"b\"|/");
    reads("\"two\nlines\",x\ny\n", "1:two\nlines|x/3:y/");
    reads("\"end\"", "1:end/");
    reads(" a , b \n", "1: a | b /");
    REFUSES("a\nb,c\"d\n", "f.csv: line 2, column 2: a quote inside a field");
    REFUSES("a,\"bc\nd\n", "f.csv: line 1, column 2: a quote opens here and never closes");
    REFUSES("\"", "never closes");
    REFUSES("\"a\"b,c\n", "f.csv: line 1, column 1: text after a closing quote");
    REFUSES("a\rb\n", "a carriage return without a line feed");
    REFUSES("a,b\0c\n", "line 1, column 2: a NUL byte");
    REFUSES("a\n\"b\0\"\n", "line 2, column 1: a NUL byte");

    /* More fields than the list begins with. */
    char wide[400], got[4096];
    memset(wide, ',', sizeof wide);
    OK(render(wide, sizeof wide, got) == CHEX_OK && strlen(got) == 2 + 400 + 1, "401 empty fields");
    return tap_done();
}
