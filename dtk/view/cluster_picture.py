ClusterPicture = list
