/* SPDX-License-Identifier: Apache-2.0
 *
 * Letters as strokes on a grid, for eval/canvas.h.
 *
 * Format of a letter: first its width, then points x, y of two characters each. A blank starts a
 * new stroke. Two equal points are a dot. Heights: 0 and up descender, 3 baseline, 8 x-height, a
 * (ten) capitals.
 */
#include <stddef.h>
#include <string.h>

#include "eval/canvas.h"

enum { BASE = 3, CAPITAL = 7, GAP = 2, FIRST = ' ', LAST = '~' };

static const char *const letters[LAST - FIRST + 1] = {
    [' ' - FIRST] = "2",
    ['!' - FIRST] = "0 0a06 0303",
    ['"' - FIRST] = "2 0a08 2a28",
    ['#' - FIRST] = "4 131a 333a 0848 0545",
    ['%' - FIRST] = "6 08181a0a08 5363655553 035a",
    ['&' - FIRST] = "4 4318192a39380504132346",
    ['\'' - FIRST] = "0 0a08",
    ['(' - FIRST] = "2 2a080422",
    [')' - FIRST] = "2 0a282402",
    ['*' - FIRST] = "4 2a26 0947 0749",
    ['+' - FIRST] = "4 0646 2824",
    [',' - FIRST] = "1 1301",
    ['-' - FIRST] = "3 0636",
    ['.' - FIRST] = "0 0303",
    ['/' - FIRST] = "4 024a",
    ['0' - FIRST] = "4 1304091a3a49443313",
    ['1' - FIRST] = "3 082a23 0333",
    ['2' - FIRST] = "4 091a3a49470343",
    ['3' - FIRST] = "4 091a3a494837 17374644331304",
    ['4' - FIRST] = "4 333a0545",
    ['5' - FIRST] = "4 4a0a07374644331304",
    ['6' - FIRST] = "4 493a1a090413334446371706",
    ['7' - FIRST] = "4 0a4a13",
    ['8' - FIRST] = "4 1708091a3a494837170604133344463717",
    ['9' - FIRST] = "4 04133344493a1a0907163647",
    [':' - FIRST] = "0 0303 0707",
    [';' - FIRST] = "1 1301 1717",
    ['<' - FIRST] = "4 490643",
    ['=' - FIRST] = "4 0747 0545",
    ['>' - FIRST] = "4 094603",
    ['?' - FIRST] = "4 091a3a49482625 2323",
    ['A' - FIRST] = "4 032a43 1636",
    ['B' - FIRST] = "4 030a3a49483707 3746443303",
    ['C' - FIRST] = "4 493a1a0904133344",
    ['D' - FIRST] = "4 030a2a48452303",
    ['E' - FIRST] = "4 4a0a0343 0737",
    ['F' - FIRST] = "4 4a0a03 0737",
    ['G' - FIRST] = "4 493a1a09041333444626",
    ['H' - FIRST] = "4 030a 434a 0747",
    ['I' - FIRST] = "2 0323 0a2a 1a13",
    ['J' - FIRST] = "3 3a34231304",
    ['K' - FIRST] = "4 030a 4a06 1743",
    ['L' - FIRST] = "4 0a0343",
    ['M' - FIRST] = "4 030a264a43",
    ['N' - FIRST] = "4 030a434a",
    ['O' - FIRST] = "4 1304091a3a49443313",
    ['P' - FIRST] = "4 030a3a49473606",
    ['Q' - FIRST] = "4 1304091a3a49443313 2543",
    ['R' - FIRST] = "4 030a3a49473606 2643",
    ['S' - FIRST] = "4 493a1a090817374644331304",
    ['T' - FIRST] = "4 0a4a 2a23",
    ['U' - FIRST] = "4 0a041333444a",
    ['V' - FIRST] = "4 0a234a",
    ['W' - FIRST] = "6 0a1338536a",
    ['X' - FIRST] = "4 034a 0a43",
    ['Y' - FIRST] = "4 0a264a 2623",
    ['Z' - FIRST] = "4 0a4a0343",
    ['[' - FIRST] = "2 2a0a0222",
    ['\\' - FIRST] = "4 0a42",
    [']' - FIRST] = "2 0a2a2202",
    ['^' - FIRST] = "4 072a47",
    ['_' - FIRST] = "4 0242",
    ['`' - FIRST] = "1 0a18",
    ['a' - FIRST] = "4 4843 4738180704133344",
    ['b' - FIRST] = "4 0a03 0718384744331304",
    ['c' - FIRST] = "4 4738180704133344",
    ['d' - FIRST] = "4 4a43 4738180704133344",
    ['e' - FIRST] = "4 06464738180704133344",
    ['f' - FIRST] = "3 3a2a1913 0838",
    ['g' - FIRST] = "4 4841301001 4738180705143445",
    ['h' - FIRST] = "4 0a03 0718384743",
    ['i' - FIRST] = "0 0803 0a0a",
    ['j' - FIRST] = "2 28211000 2a2a",
    ['k' - FIRST] = "3 0a03 3805 1633",
    ['l' - FIRST] = "1 0a0413",
    ['m' - FIRST] = "6 0803 0718283733 3748586763",
    ['n' - FIRST] = "4 0803 0718384743",
    ['o' - FIRST] = "4 130407183847443313",
    ['p' - FIRST] = "4 0800 0718384744331304",
    ['q' - FIRST] = "4 4840 4738180704133344",
    ['r' - FIRST] = "3 0803 06182837",
    ['s' - FIRST] = "4 47381807163544331304",
    ['t' - FIRST] = "3 1a142333 0838",
    ['u' - FIRST] = "4 0804133344 4843",
    ['v' - FIRST] = "4 082348",
    ['w' - FIRST] = "6 0813375368",
    ['x' - FIRST] = "4 0843 0348",
    ['y' - FIRST] = "4 0823 4810",
    ['z' - FIRST] = "4 08480343",
    ['|' - FIRST] = "0 0a02",
    ['~' - FIRST] = "4 06172547",
};
static const char box[] = "4 030a4a4303";

/* The next letter of the text. A UTF-8 sequence of several bytes is one letter. */
static const char *next_letter(const char **text) {
    const unsigned char first = (unsigned char)*(*text)++;
    while (((unsigned char)**text & 0xc0) == 0x80)
        (*text)++;
    if (first < FIRST || first > LAST || !letters[first - FIRST])
        return box;
    return letters[first - FIRST];
}

static int grid(char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; }

double chex_canvas_text_width(double height, const char *text) {
    int units = 0;
    while (*text)
        units += grid(next_letter(&text)[0]) + GAP;
    return units ? (units - GAP) * height / CAPITAL : 0;
}

static void put_letter(struct chex_canvas *c, double x, double y, double across, double up,
                       const char *strokes, struct chex_colour colour) {
    const double thick = up * CAPITAL / 8 < 1.2 ? 1.2 : up * CAPITAL / 8;
    const char *from = NULL;
    for (const char *p = strokes + 1; *p; p++) {
        if (*p == ' ') {
            from = NULL;
            continue;
        }
        if (from)
            chex_canvas_line(c, x + grid(from[0]) * across, y - (grid(from[1]) - BASE) * up,
                             x + grid(p[0]) * across, y - (grid(p[1]) - BASE) * up, thick, colour);
        from = p++;
    }
}

double chex_canvas_text(struct chex_canvas *c, double x, double y, double height, double width,
                        const char *text, struct chex_colour colour) {
    const double natural = chex_canvas_text_width(height, text), up = height / CAPITAL;
    const double across = width > 0 && natural > width ? up * width / natural : up;
    for (double at = x; *text;) {
        const char *letter = next_letter(&text);
        put_letter(c, at, y, across, up, letter, colour);
        at += (grid(letter[0]) + GAP) * across;
    }
    return natural * across / up;
}
