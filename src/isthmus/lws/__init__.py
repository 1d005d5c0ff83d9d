"""LeaderWorkerSets run as ModelServings of the same name (MS-110 to MS-112)."""
