// A reader's query in parts, as building.extension.Pairs divides the pages: words of other letters, pairs of Chinese ones.
function splitQuery(query) {
  const runs = query.match(/[\u3400-\u4dbf\u4e00-\u9fff]+|(?:(?![\u3400-\u4dbf\u4e00-\u9fff])[\p{L}\p{N}_])+/gu) || [];
  return runs.flatMap((run) => {
    if (!/^[\u3400-\u4dbf\u4e00-\u9fff]{2}/.test(run)) return [run];
    return Array.from({ length: run.length - 1 }, (_, at) => run.slice(at, at + 2));
  });
}
