/* A stable merge sort of items, for whoever includes it with MERGE_ITEM and MERGE_BEFORE(one, other) defined: natural runs
 * are merged until one is left, so what is sorted already costs one look. */

/* Sorts `items` with the help of as much room in `spare`; returns which of the two holds them then. */
static MERGE_ITEM *
merge_runs(MERGE_ITEM *items, MERGE_ITEM *spare, int64_t count)
{
    int sorted = 0;
    while (!sorted) {
        int64_t left = 0;
        sorted = 1;
        while (left < count) {
            int64_t middle = left + 1;
            while (middle < count && !MERGE_BEFORE(&items[middle], &items[middle - 1])) {
                middle++;
            }
            if (left == 0 && middle == count) {
                return items;
            }
            int64_t right = middle < count ? middle + 1 : middle;
            while (right < count && !MERGE_BEFORE(&items[right], &items[right - 1])) {
                right++;
            }
            int64_t a = left, b = middle, out = left;
            while (a < middle && b < right) {
                int later = MERGE_BEFORE(&items[b], &items[a]);
                spare[out++] = later ? items[b] : items[a];
                a += !later;
                b += later;
            }
            memcpy(spare + out, items + a, (size_t)(middle - a) * sizeof(MERGE_ITEM));
            out += middle - a;
            memcpy(spare + out, items + b, (size_t)(right - b) * sizeof(MERGE_ITEM));
            sorted = sorted && left == 0 && right == count;
            left = right;
        }
        MERGE_ITEM *swap = items;
        items = spare;
        spare = swap;
    }
    return items;
}
